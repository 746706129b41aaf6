"""The facts of a prompt, as text: the module, the device, a parent with its figures, failures, winners elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelwright.agent.proposers.assignment import Assignment, Kind
from kernelwright.agent.proposers.base import Context, Trial
from kernelwright.kernelbench import contract
from kernelwright.stages.archive.retrieve import Hit
from kernelwright.stages.measure import devices
from kernelwright.stages.types import Backend, Measurement, Status

MOST_FAILURES = 6
MOST_ERROR = 3000
"""Characters of an error: its beginning and its end."""
MOST_SOURCE = 30_000
"""Characters of a source that is shown as material."""
LANGUAGES = {
    Backend.CPP: "C++",
    Backend.TRITON: "Triton",
    Backend.CUDA: "CUDA C++",
    Backend.TORCH: "PyTorch",
}


def facts(context: Context, assignment: Assignment, retrieved: Sequence[Hit], **extra: Any) -> dict[str, Any]:
    """Everything that a template may name."""
    loaded = contract.load(context.problem)
    name, _, sentence = assignment.directive.partition(":")
    parents = [_shown(trial) for trial in assignment.parents]
    return {
        "problem_source": context.problem.source.strip(),
        "functional": shortened(context.info.functional.strip(), MOST_SOURCE),
        "device": device_card(context),
        "flops": f"{context.info.flops:.3g}",
        "bytes_least": f"{context.info.bytes_least:,}",
        "light": _light(context.history),
        "language": LANGUAGES[assignment.backend],
        "other_backends": _others(context.device, assignment.backend),
        "language_contract": assignment.backend.value,
        "precision": loaded.precision.value,
        "directive_name": name,
        "directive": sentence.strip(),
        "failures": failures(context.history, assignment.parents),
        "retrieved": "\n\n".join(map(_retrieved, retrieved)),
        "inductor": "",
        "cards": "",
        "parent": parents[0] if parents else None,
        "second": parents[1] if len(parents) > 1 else None,
        "status": assignment.parents[0].result.verdict.status.value if assignment.parents else "",
        "error": shortened(assignment.parents[0].result.verdict.message, MOST_ERROR) if assignment.parents else "",
        "repairs": assignment.repairs,
        "diagnosis": "",
        "again": "",
        "edits_allowed": assignment.kind in (Kind.REPAIR, Kind.IMPROVE),
    } | extra


def device_card(context: Context) -> str:
    """What is known of the device: from this run's own measurements, else from this machine."""
    seen = [t.result.environment for t in context.history if t.result.environment.device == context.device]
    if seen:
        where = seen[-1]
    elif context.device == "cpu":
        where = devices.environment("cpu")
    else:
        return "An NVIDIA GPU of the class of the H100 and H200 (sm_90), with float32 tensors in device memory."
    cache = devices.last_level_cache_bytes("cpu") if context.device == "cpu" else None
    lines = [f"{where.device_name}, torch {where.torch}, triton {where.triton}."]
    if cache is not None:
        lines.append(f"{where.threads} threads; last-level cache {cache / 2**20:.0f} MiB.")
    return "\n".join(lines)


def report(trial: Trial) -> str:
    """What was measured of a candidate, and what its compiler says, in a few lines."""
    lines = []
    measurement = trial.result.measurement
    if measurement is not None:
        lines.append(_times(measurement))
        light = measurement.speed_of_light
        if light is not None:
            lines.append(
                f"It runs at {light.fraction:.0%} of the speed of light ({light.bytes_least:,} bytes at least: "
                f"{light.byte_ms:.4g} ms)."
            )
    compilation = trial.result.compilation
    for kernel in compilation.resources if compilation is not None else ():
        needs = [
            f"{value} {what}"
            for value, what in (
                (kernel.registers, "registers"),
                (kernel.shared_bytes, "bytes of shared memory"),
                (kernel.spill_bytes, "bytes spilled"),
            )
            if value is not None
        ]
        lines.append(f"The compiler says of {kernel.kernel} on {kernel.target}: {', '.join(needs)}.")
    if trial.candidate.library_ops:
        lines.append(f"Still library calls: {', '.join(trial.candidate.library_ops)}.")
    return "\n".join(lines)


def failures(history: Sequence[Trial], shown: Sequence[Trial]) -> str:
    """What failed, and what brought nothing, the latest first; without those that are shown anyway."""
    known = {trial.candidate.hash for trial in shown}
    failed = [t for t in history if t.candidate.hash not in known and t.result.verdict.status is not Status.CORRECT]
    lines = []
    for trial in failed[::-1][:MOST_FAILURES]:
        said = trial.result.verdict.message.strip().split("\n", 1)[0]
        lines.append(f"- {_aim(trial)}: {trial.result.verdict.status.value}: {shortened(said, 300)}")
    slower = [t for t in history if t.candidate.hash not in known and _speedup(t) is not None]
    for trial in sorted(slower, key=lambda t: _speedup(t) or 0.0)[:MOST_FAILURES]:
        lines.append(f"- {_aim(trial)}: correct, {_speedup(trial):.2f}x over eager")
    return "\n".join(lines)


def shortened(text: str, most: int) -> str:
    """A text's beginning and end, where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n... ({len(text) - most} characters left out) ...\n{text[-(most // 2) :]}"


def _shown(trial: Trial) -> dict[str, str]:
    return {"source": trial.candidate.source.strip(), "report": report(trial)}


def _times(measurement: Measurement) -> str:
    speedups = [f"{r.median:.2f}x over {name} [{r.low:.2f}, {r.high:.2f}]" for name, r in measurement.speedups.items()]
    return f"It takes {measurement.candidate.median_ms:.4g} ms a call: {', '.join(speedups)}."


def _light(history: Sequence[Trial]) -> str:
    known = [t.result.measurement.speed_of_light for t in history if t.result.measurement is not None]
    light = next((bound for bound in known if bound is not None), None)
    if light is None:
        return ""
    flops = "" if light.flop_ms is None else f", and {light.flop_ms:.4g} ms for the operations"
    return f" At this device's speed that is at least {light.byte_ms:.4g} ms for the bytes{flops}."


def _others(device: str, backend: Backend) -> str:
    fitting = (Backend.CPP,) if device == "cpu" else (Backend.TRITON, Backend.CUDA)
    return " and ".join(LANGUAGES[b] for b in fitting if b is not backend)


def _retrieved(hit: Hit) -> str:
    source = shortened(hit.candidate.source.strip(), MOST_SOURCE // 3)
    head = f"{hit.problem}, {hit.speedup.median:.2f}x over eager on {hit.device_name}. {hit.reason}"
    return f"{head}\n\n```python\n{source}\n```"


def _aim(trial: Trial) -> str:
    return shortened(trial.candidate.directive or trial.candidate.template or trial.candidate.proposer, 120)


def _speedup(trial: Trial) -> float | None:
    measurement = trial.result.measurement
    eager = measurement.speedups.get("eager") if measurement is not None else None
    return None if eager is None else eager.median
