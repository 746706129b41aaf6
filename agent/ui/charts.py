"""Charts as inline SVG: no script, no remote address, colours from the page's own variables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from kernelwright.agent.ui.view import Row
from kernelwright.stages.types import Measurement

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 260, 48, 34, 14


def speedups(rows: Sequence[Row], winner: str | None) -> str:
    """Speedup over eager of each candidate in the order of proposal, with its interval; a cross for a rejection."""
    measured = [r.over_eager for r in rows if r.over_eager]
    if not measured:
        return ""
    top = max(1.2, max(r.high for r in measured)) * 1.08
    step = (WIDTH - LEFT - 12) / max(len(rows), 1)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)

    parts = []
    for tick in _ticks(top):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}x</text>')
    parts.append(f'<line class="one" x1="{LEFT}" x2="{WIDTH}" y1="{y(1):.1f}" y2="{y(1):.1f}"/>')
    for number, row in enumerate(rows):
        x = LEFT + (number + 0.5) * step
        label = (
            f"<title>{escape(row.candidate.hash[:12])} {escape(row.candidate.directive)}: {escape(row.status)}</title>"
        )
        if row.over_eager is None:
            parts.append(f'<text class="bad" x="{x:.1f}" y="{y(0) - 4:.1f}" text-anchor="middle">{label}&#215;</text>')
            continue
        ratio = row.over_eager
        kind = "win" if row.candidate.hash == winner else "dim" if row.status != "correct" else "dot"
        parts.append(
            f'<g class="{kind}">{label}'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y(ratio.low):.1f}" y2="{y(ratio.high):.1f}"/>'
            f'<circle cx="{x:.1f}" cy="{y(ratio.median):.1f}" r="4"/></g>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        "candidates in the order of proposal</text>"
    )
    return _svg(HEIGHT, "Speedup over eager of each candidate", parts)


def times(measurement: Measurement) -> str:
    """Median milliseconds of the baselines and of the candidate, as bars."""
    found: Mapping[str, float] = {
        **{name: timing.median_ms for name, timing in measurement.baselines.items()},
        "this candidate": measurement.candidate.median_ms,
    }
    longest = max(found.values())
    parts = []
    for number, (name, value) in enumerate(found.items()):
        y = 8 + number * 30
        width = (WIDTH - 260) * value / longest
        kind = "bar win" if name == "this candidate" else "bar"
        parts.append(f'<text x="130" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="{kind}" x="140" y="{y}" width="{width:.1f}" height="20" rx="2"/>')
        parts.append(f'<text x="{148 + width:.1f}" y="{y + 15}">{value:.4g} ms</text>')
    return _svg(16 + 30 * len(found), "Median time of a call", parts)


def _svg(height: int, label: str, parts: Sequence[str]) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _ticks(top: float) -> list[float]:
    step = 10 ** math.floor(math.log10(top))
    step = next(s for s in (step / 5, step / 2, step, step * 2) if top / s <= 6)
    return [round(i * step, 6) for i in range(int(top / step) + 1)]
