"""The evidence of a verdict, for a person: a line a kind of check, the times, the machine, and last the verdict."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from kernelwright.agent.evidence import LIGHT, TASK, WORK, Evidence, Line, device_words
from kernelwright.agent.ui.view import ratio_text
from kernelwright.stages.static import Finding
from kernelwright.stages.types import Measurement, OwnWork, SpeedOfLight, Status, Timing

FIGURES = 37
"""Columns of a line of checks beside the check's name."""
LEAST_NAME = 20
PLAIN_WIDTH = 80
"""Where prose is wrapped in a pipe; names of checks are whole there."""
ALWAYS_EXPLAINED = (TASK, WORK, LIGHT)
"""Groups whose detail is worth a line although the check passed."""
KERNELS_SHOWN = 6

Styled = tuple[str, str]
"""A line and its rich style."""


def print_evidence(found: Evidence) -> None:
    """Print all of it: in colour and wrapped to the width on a terminal, plain and whole for a pipe."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    width = console.width if sys.stdout.isatty() else None
    for text, style in styled(found, width):
        console.print(Text(text, style=style))


def styled(found: Evidence, width: int | None) -> list[Styled]:
    """Every line with its style, wrapped to `width`; names of checks stay on one line where that is not known."""
    return [
        *_checks(found.lines, width),
        *_plain(_times(found, width or PLAIN_WIDTH)),
        *_plain(_work(found.work, width or PLAIN_WIDTH)),
        *_plain(_notes(found.notes, width or PLAIN_WIDTH)),
        ("", ""),
        *_plain(_wrapped(f"machine  {machine(found)}", width or PLAIN_WIDTH, 9)),
        *_verdict(found, width or PLAIN_WIDTH),
    ]


def machine(found: Evidence) -> str:
    """Device and versions in one line."""
    where = found.environment
    versions = [("driver", where.driver), ("torch", where.torch), ("triton", where.triton), ("python", where.python)]
    words = [f"{name} {version}" for name, version in versions if version]
    return ", ".join([f"{where.device_name} ({where.device})", *words, f"{where.threads} threads"])


def headline(found: Evidence) -> str:
    """The verdict in one line."""
    status = found.verdict.status
    if status is not Status.CORRECT:
        failed = next(iter(found.verdict.message.strip().splitlines()), "no reason was given")
        return f"{status.value}: {failed}"
    if found.measurement is None:
        return f"correct: {found.name} does what {found.problem} does (it was not timed)"
    ratio = found.measurement.speedups.get("eager")
    if ratio is None:
        return f"correct: {found.name} does what {found.problem} does, {_ms(found.measurement.candidate)} a call"
    word = "faster than eager" if found.gain else "not faster than eager beyond doubt"
    return f"correct and {word}: {ratio_text(ratio)}"


def _checks(lines: Sequence[Line], width: int | None) -> Iterator[Styled]:
    if not lines:
        return
    longest = max(len(line.name) for line in lines) + 2
    name_width = longest if width is None else max(LEAST_NAME, min(longest, width - FIGURES))
    yield f"{'check':<{name_width}}  {'times':>5}  {'worst':>9}  {'bound':>9}  result", "bold"
    for group, same in groupby(lines, key=lambda line: line.group):
        yield group, "bold"
        for line in same:
            name, *rest = _wrapped(f"  {line.name}", name_width, 4)
            figures = f"{line.times:>5}  {_figure(line.figure):>9}  {_figure(line.bound):>9}"
            style = "" if line.passed else "red"
            yield f"{name:<{name_width}}  {figures}  {'pass' if line.passed else 'FAIL'}", style
            yield from ((text, style) for text in rest)
            if line.detail and (not line.passed or group in ALWAYS_EXPLAINED):
                for text in _wrapped(f"    {line.detail}", width or PLAIN_WIDTH, 4):
                    yield text, "dim"


def _times(found: Evidence, width: int) -> Iterator[str]:
    measurement = found.measurement
    if measurement is None:
        return
    yield ""
    rounds = len(measurement.candidate.samples_ms)
    yield f"times: medians of {rounds} rounds, and 95 % intervals"
    for name, text in _time_rows(measurement):
        yield from _wrapped(f"  {name:<14}  {text}", width, 18)
    yield from _wrapped(f"  {measurement.method}", width, 2)


def _time_rows(measurement: Measurement) -> Iterator[tuple[str, str]]:
    yield "candidate", _ms(measurement.candidate)
    for name, timing in measurement.baselines.items():
        ratio = measurement.speedups.get(name)
        yield name, f"{_ms(timing)}  {ratio_text(ratio) if ratio else ''}".rstrip()
    if measurement.warm:
        yield "warm cache", _ms(measurement.warm)
    if measurement.graph_replay_ms is not None:
        yield "graph replay", f"{measurement.graph_replay_ms:>8.4g} ms  (shown; it decides nothing)"
    if measurement.speed_of_light:
        yield "speed of light", _light(measurement.speed_of_light)
    if words := device_words(measurement.device_state):
        yield "device", words


def _light(light: SpeedOfLight) -> str:
    bounds = [f"{light.bytes_least / 2**20:.3g} MiB in {light.byte_ms:.3g} ms"]
    if light.flop_ms is not None:
        bounds.append(f"{light.flops:.3g} FLOP in {light.flop_ms:.3g} ms")
    label = f"  {light.label}" if light.label else ""
    return f"{100 * light.fraction:.0f} % of it: at least {', '.join(bounds)}{label}"


def _work(work: OwnWork | None, width: int) -> Iterator[str]:
    if work is None:
        return
    operators = ", ".join(f"{name} x{count}" for name, count in work.operators.items()) or "none"
    yield ""
    yield from _wrapped(f"operators that a call ran: {operators}", width, 2)
    for kernel in sorted(work.kernels, key=lambda k: -k.share)[:KERNELS_SHOWN]:
        yield f"  {100 * kernel.share:3.0f} %  {'own    ' if kernel.own else 'library'}  {kernel.name}"[:width]
    words = {True: "the output breaks without it", False: "the output is the same without it", None: "not ablated"}
    yield from (f"  {name}: {words[broke]}" for name, broke in work.ablated.items())


def _notes(notes: Sequence[Finding], width: int) -> Iterator[str]:
    if not notes:
        return
    yield ""
    yield "worth a second look in the source (it decides nothing)"
    for note in notes:
        yield from _wrapped(f"  line {note.line}: {note.sentence}", width, 4)


def _verdict(found: Evidence, width: int) -> Iterator[Styled]:
    good = found.verdict.status is Status.CORRECT
    head, *rest = _wrapped(f"verdict  {headline(found)}", width, 9)
    yield head, "bold green" if good else "bold red"
    yield from ((text, "") for text in rest)
    if not good:
        # The first line is in the verdict already; a compiler's or a traceback's own lines are kept as they are.
        for text in found.verdict.message.strip().splitlines()[1:]:
            yield f"         {text}", "dim"
    yield from ((text, "") for text in _wrapped(f"next     {found.next_step}", width, 9))
    if found.command:
        yield f"again    {found.command}", ""


def _plain(lines: Iterator[str] | list[str]) -> Iterator[Styled]:
    return ((line, "") for line in lines)


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _ms(timing: Timing) -> str:
    return f"{timing.median_ms:>8.4g} ms"
