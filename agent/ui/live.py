"""The live screen of a run: on a terminal a panel that is redrawn, elsewhere one plain line an event. All on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kernelwright.agent.ui.events import Evaluated, Event, Proposed, Stopped
from kernelwright.agent.ui.view import Row, RunView, fold, ratio_text
from kernelwright.stages.execute.job import Progress

REDRAWS_PER_SECOND = 4
REJECTIONS = 3
STAGE_WORDS = {
    "compile": "compiling",
    "prepare": "drawing inputs, working out the right answers in float64",
    "verify": "verifying",
    "baselines": "waiting for torch.compile",
    "measure": "timing beside the baselines",
}


class LiveScreen:
    """A context that shows a run; call it with each event."""

    def __init__(self, view: RunView) -> None:
        self.view = view
        self.started = time.monotonic()
        self.console = Console(stderr=True, highlight=False)
        self.plain = not self.console.is_terminal or self.console.is_dumb_terminal
        self._live: Live | None = None

    def __enter__(self) -> LiveScreen:
        if not self.plain:
            self._live = Live(
                get_renderable=self._draw,
                console=self.console,
                refresh_per_second=REDRAWS_PER_SECOND,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take an event in, and show what it changes."""
        self.view = fold(self.view, event)
        if self.plain and (line := plain_line(self.view, event)):
            print(line, file=sys.stderr, flush=True)

    def _draw(self) -> RenderableType:
        return draw(self.view, time.monotonic() - self.started, self.console.options.ascii_only)


def plain_line(view: RunView, event: Event) -> str:
    """One line for a log; empty for events that a log does not need."""
    if isinstance(event, Proposed):
        return f"generation {event.generation}: {len(event.candidates)} proposed"
    if isinstance(event, Evaluated):
        row = view.rows[event.candidate.hash]
        word = "confirmed" if event.confirmed else row.status
        return f"{word} {row.candidate.hash[:12]} {row.candidate.directive}: {_fate(row)}"
    if isinstance(event, Progress):
        # The first candidate waits for what all of them share, and nothing else would tell for how long.
        return STAGE_WORDS[event.stage] if not view.judged and event.stage in ("prepare", "baselines") else ""
    assert isinstance(event, Stopped)
    return f"search ended: {event.reason}"


def draw(view: RunView, elapsed_s: float, ascii_only: bool = False) -> RenderableType:
    """The whole screen as one renderable, at most 18 lines high."""
    arrow = " -> " if ascii_only else " → "
    funnel = view.funnel
    counts = Text("  ")
    for number, (word, count) in enumerate(
        (
            ("proposed", funnel.proposed),
            ("compiled", funnel.compiled),
            ("correct", funnel.correct),
            ("faster", funnel.faster),
        )
    ):
        counts.append(arrow if number else "")
        counts.append(f"{count} ", style="bold")
        counts.append(word)
    left = max(0.0, view.time_s - elapsed_s)
    title = Text.assemble(("kernelwright ", "bold"), view.problem.name, f" on {view.device}", style="")
    budget = (
        f"  {elapsed_s:.0f} s gone, {left:.0f} s and {max(0, view.max_candidates - funnel.proposed)} candidates left"
    )
    lines: list[RenderableType] = [title, Text(budget, style="dim"), counts, Text()]
    lines += _incumbent(view)
    lines += [Text(), _rejections(view), _in_flight(view)]
    return Group(*lines)


def _incumbent(view: RunView) -> list[RenderableType]:
    row = view.incumbent
    if row is None or row.measurement is None:
        return [Text("  no correct candidate yet", style="dim")]
    lines: list[RenderableType] = [
        Text.assemble("  best so far  ", (row.candidate.hash[:12], "bold"), f"  {row.candidate.directive}")
    ]
    for name, ratio in row.measurement.speedups.items():
        style = "green" if ratio.low > 1.0 else "yellow" if ratio.high > 1.0 else "red"
        lines.append(Text.assemble(f"    over {name:<8}", (ratio_text(ratio), style)))
    times = {"candidate": row.measurement.candidate, **row.measurement.baselines}
    lines.append(Text("    " + ", ".join(f"{n} {t.median_ms:.3g} ms" for n, t in times.items()), style="dim"))
    return lines


def _rejections(view: RunView) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for row in view.rejections[:REJECTIONS]:
        table.add_row(Text(f"  {row.status}", style="red"), row.candidate.hash[:8], Text(_fate(row), style="dim"))
    return table


def _in_flight(view: RunView) -> RenderableType:
    if view.stop:
        what = list(view.stages.values())[-1] if view.stages else "confirm"
        return Text(f"  search ended: {view.stop}; measuring the winner again ({STAGE_WORDS.get(what, what)})")
    if not view.stages:
        return Text("  proposing", style="cyan")
    busy = [stage for stage in view.stages.values() if stage != "compile"]
    stage = busy[-1] if busy else "compile"
    waiting = len(view.stages) - 1
    more = f", {waiting} waiting" if waiting else ""
    return Text(f"  {STAGE_WORDS.get(stage, stage)}{more}", style="cyan")


def _fate(row: Row) -> str:
    if row.over_eager is not None:
        return f"{ratio_text(row.over_eager)} over eager"
    message = row.latest.verdict.message if row.latest else ""
    return message.splitlines()[0] if message else ""
