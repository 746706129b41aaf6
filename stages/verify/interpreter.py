"""Check a Triton candidate's numbers without a GPU: Triton's interpreter runs it on the CPU, float64 judges it.

The interpreter takes about a millisecond a program, so that the problem is made small where possible. A candidate may
rightly be written for one size: what fails at a smaller one is tried at the problem's own size, and only that decides.
"""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelwright.kernelbench.contract import Contract, instantiate, load
from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.syntax import with_shape
from kernelwright.stages.compile.process import python_environment, run_limited, trimmed
from kernelwright.stages.types import Candidate, Check

NOT_RUN = "not run: "
"""Begins the detail of a check that could not be made; such a check has not passed and has no figure."""

SMALL_ELEMENTS = 2**18
"""Inputs up to this size are used as they are."""

LARGEST_ELEMENTS = 2**23
"""Largest inputs that the interpreter is given, when nothing smaller could decide."""

DRAWN_ELEMENTS = 2**27
"""Largest inputs (0.5 GiB of float32) that are drawn at all, to be cut to their first rows."""

ROWS = 16
"""What the leading dimension is cut to."""

ERROR_OVER_REFERENCE = 8.0
"""Error allowed, as a multiple of the reference's own error in the problem's precision."""

ERROR_IN_EPS = 64.0
"""Error allowed in any case, in machine epsilons of the output's dtype."""


@dataclass(frozen=True)
class _Setting:
    """A size to run at."""

    label: str
    model: torch.nn.Module
    init_inputs: list[Any]
    inputs: list[Any]
    seed: int
    """The constructor's: equal parameters even where the candidate names them otherwise."""
    own: bool
    """Whether it is the problem's own size, at which a failure is the candidate's."""
    upcast: bool = False
    """Whether bfloat16 was replaced by float32."""


@dataclass(frozen=True)
class _Expected:
    """The reference's outputs, in float64 and in the problem's precision."""

    exact: list[torch.Tensor]
    usual: list[torch.Tensor]


def interpret(candidate: Candidate, problem: Problem, *, deadline_s: float, seed: int = 0) -> tuple[Check, ...]:
    """Compare what Triton's interpreter computes with the reference in float64: one check an output.

    A check's figure is the largest error relative to the output's largest magnitude (for integers: the share of
    elements that differ). Its bound is `max(8 x the reference's own error, 64 eps)`. A check that could not be made has
    a detail that begins with NOT_RUN. Raises EnvironmentFault when triton is missing.
    """
    if importlib.util.find_spec("triton") is None:
        raise EnvironmentFault("triton is not installed; pip install triton.")
    ends = time.monotonic() + deadline_s
    reasons: list[str] = []
    for setting in _settings(problem, seed):
        remaining_s = ends - time.monotonic()
        if remaining_s <= 0:
            reasons.append(f"{setting.label}: no time left of {deadline_s:g} s")
            break
        checks = _at(setting, candidate, remaining_s)
        if all(check.passed for check in checks):
            return checks
        failure = "; ".join(check.detail for check in checks if not check.passed)
        doubt = _doubt(candidate, failure)
        if setting.own and not doubt and not failure.startswith(NOT_RUN):
            return checks
        reasons.append(failure.removeprefix(NOT_RUN) + (f" ({doubt})" if doubt else ""))
    reasons = reasons or [f"inputs have more than {LARGEST_ELEMENTS} elements, and no smaller shape is known"]
    return (Check("interpreter", passed=False, detail=NOT_RUN + "; ".join(reasons)),)


def _doubt(candidate: Candidate, failure: str) -> str:
    """Why a failure may be the interpreter's own; empty when there is no reason to think so."""
    if "bfloat16" in candidate.source:
        return "the candidate computes in bfloat16, which the interpreter gets wrong"
    triton, numpy = (tuple(map(int, importlib.metadata.version(p).split(".")[:2])) for p in ("triton", "numpy"))
    if "InterpreterError" in failure and triton < (3, 7) and numpy >= (2, 0):
        return "the interpreter of triton 3.6 fails with numpy 2"
    return ""


def _settings(problem: Problem, seed: int) -> Iterator[_Setting]:
    """Sizes to try: the problem's own when it is small, else its `tiny` shape, fewer rows, and its own all the same."""
    contract = load(problem)
    elements = _elements(contract)
    if elements <= SMALL_ELEMENTS:
        yield _setting("own size", problem, seed, own=True)
        return
    if "tiny" in contract.shapes:
        tiny = Problem(problem.name, with_shape(problem.source, problem.origin, "tiny"), problem.origin, "tiny")
        yield _setting("shape tiny", tiny, seed, own=False)
    if elements <= DRAWN_ELEMENTS:
        own = _setting("own size", problem, seed, own=True)
        if fewer := _fewer_rows(own):
            yield fewer
        if elements <= LARGEST_ELEMENTS:
            yield own


def _elements(contract: Contract) -> int:
    """Elements of all inputs together, found without allocating them where the problem's code allows that."""
    try:
        with torch.device("meta"):
            inputs = contract.get_inputs()
    except Exception:  # noqa: BLE001  the problem's code may need values; then the inputs are drawn
        inputs = contract.get_inputs()
    return sum(x.numel() for x in inputs if isinstance(x, torch.Tensor))


def _setting(label: str, problem: Problem, seed: int, *, own: bool) -> _Setting:
    contract = load(problem)
    model, inputs = instantiate(contract, "cpu", seed)
    tensors = [*model.state_dict().values(), *(x for x in inputs if isinstance(x, torch.Tensor))]
    upcast = any(t.dtype is torch.bfloat16 for t in tensors)
    if upcast:
        model, inputs = model.float(), _cast(inputs, torch.float32)
    torch.manual_seed(seed)
    return _Setting(label, model, list(contract.get_init_inputs()), inputs, seed, own, upcast)


def _fewer_rows(setting: _Setting) -> _Setting | None:
    """The setting with the leading dimension that all tensors share cut to ROWS, if the reference accepts that."""
    tensors = [x for x in setting.inputs if isinstance(x, torch.Tensor)]
    sizes = {x.shape[0] if x.dim() else 0 for x in tensors}
    if len(sizes) != 1 or min(sizes) <= ROWS:
        return None
    cut = [x[:ROWS].clone() if isinstance(x, torch.Tensor) else x for x in setting.inputs]
    if sum(x.numel() for x in cut if isinstance(x, torch.Tensor)) > LARGEST_ELEMENTS:
        return None
    try:
        _run(setting.model, cut)
    except Exception:  # noqa: BLE001  the problem's own code may raise anything at a size that it was not written for
        return None
    return replace(setting, label=f"{ROWS} rows", inputs=cut, own=False)


def _cast(values: list[Any], dtype: torch.dtype) -> list[Any]:
    """`values` with floating-point tensors in `dtype`."""
    return [x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in values]


def _run(model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
    """The output tensors; model and inputs stay as they were."""
    with torch.no_grad():
        return tensors_of(copy.deepcopy(model)(*copy.deepcopy(inputs)))


def tensors_of(output: Any) -> list[torch.Tensor]:
    """All tensors of an output (a tensor, or nested lists, tuples and dicts), in order."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    return [t for item in output for t in tensors_of(item)] if isinstance(output, list | tuple) else []


def _at(setting: _Setting, candidate: Candidate, deadline_s: float) -> tuple[Check, ...]:
    """The checks at one size."""
    try:
        exact = _run(copy.deepcopy(setting.model).double(), _cast(setting.inputs, torch.float64))
        expected = _Expected(exact, _run(setting.model, setting.inputs))
    except Exception as error:  # noqa: BLE001  the problem's own code: whatever it raises in float64 is the reason
        return (Check("interpreter", passed=False, detail=f"{NOT_RUN}the reference raises in float64: {error}"),)
    found = _interpreted(setting, candidate, deadline_s)
    if isinstance(found, str):
        return (Check("interpreter", passed=False, detail=found),)
    if len(found) != len(expected.exact):
        detail = f"{len(found)} output tensors, the reference has {len(expected.exact)}"
        return (Check("interpreter", passed=False, detail=detail),)
    where = setting.label + (", bfloat16 replaced by float32" if setting.upcast else "")
    several = len(found) > 1
    return tuple(
        _compare(f"interpreter[{i}]" if several else "interpreter", *outputs, where)
        for i, outputs in enumerate(zip(found, expected.exact, expected.usual, strict=True))
    )


def _interpreted(setting: _Setting, candidate: Candidate, deadline_s: float) -> list[torch.Tensor] | str:
    """The candidate's outputs, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="interpret-") as folder:
        scratch = Path(folder)
        (scratch / "candidate.py").write_text(candidate.source)
        given = {name: getattr(setting, name) for name in ("init_inputs", "inputs", "seed")}
        torch.save({**given, "state": setting.model.state_dict()}, scratch / "given.pt")
        environment = python_environment(
            scratch, TRITON_INTERPRET="1", TRITON_CACHE_DIR=str(scratch / "cache"), CUDA_VISIBLE_DEVICES=""
        )
        argv = [sys.executable, "-m", "kernelwright.stages.verify.interpreter_child"]
        finished = run_limited(argv, cwd=scratch, deadline_s=deadline_s, env=environment)
        if finished.returncode is None:
            return f"{NOT_RUN}the interpreter exceeded {deadline_s:.0f} s"
        if signal_name := finished.signal_name:
            return f"the interpreter was ended by {signal_name}, as a store outside a tensor does"
        outputs, error = scratch / "outputs.pt", scratch / "error.txt"
        if error.exists():
            return trimmed(error.read_text())
        if not outputs.exists():
            return trimmed(f"exit code {finished.returncode} and no outputs\n{finished.output}")
        found: list[torch.Tensor] = torch.load(outputs, weights_only=True)
        return found


def _compare(name: str, found: torch.Tensor, exact: torch.Tensor, usual: torch.Tensor, where: str) -> Check:
    """One output against float64, with a bound that follows from the reference's own error."""
    if found.shape != exact.shape:
        detail = f"{where}: shape {tuple(found.shape)}, the reference has {tuple(exact.shape)}"
        return Check(name, passed=False, detail=detail)
    figure, bound = _error(found, exact), ERROR_OVER_REFERENCE * _error(usual, exact)
    if usual.is_floating_point():
        bound = max(bound, ERROR_IN_EPS * torch.finfo(usual.dtype).eps)
    passed = figure <= bound
    detail = where if passed else f"{where}: error {figure:.3g}, allowed {bound:.3g}"
    return Check(name, passed=passed, figure=figure, bound=bound, detail=detail)


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest error over the largest finite magnitude; infinite where nan or inf are not in the same places."""
    if exact.numel() == 0:
        return 0.0
    if not exact.is_floating_point():
        return float((found != exact).double().mean())
    found = found.double()
    special = ~exact.isfinite()
    if not torch.equal(~found.isfinite(), special) or not torch.equal(
        found[special].nan_to_num(0.0), exact[special].nan_to_num(0.0)
    ):
        return float("inf")
    scale = float(exact[~special].abs().max()) if not special.all() else 0.0
    difference = float((found - exact)[~special].abs().max()) if not special.all() else 0.0
    return difference / scale if scale else difference
