"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from kernelwright.agent.outcome import Outcome
from kernelwright.agent.ui import charts
from kernelwright.agent.ui.summary import Paths
from kernelwright.agent.ui.view import RunView, ratio_text
from kernelwright.stages.archive import Described


def render(view: RunView, outcome: Outcome, paths: Paths, described: Described) -> str:
    """The page's text. It holds no script and no remote address."""
    shown = outcome.best_seen
    measurement = shown.result.measurement if shown else None
    winner = outcome.winner.candidate.hash if outcome.winner else None
    rows = list(view.rows.values())
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            view=view,
            outcome=outcome,
            shown=shown,
            measurement=measurement,
            described=described,
            paths=paths,
            rows=rows,
            speedup_chart=Markup(charts.speedups(rows, winner)),
            time_chart=Markup(charts.times(measurement)) if measurement else "",
            bandwidth=_bandwidth(described, measurement.candidate.median_ms) if measurement else "",
            source=_highlighted(shown.candidate.source) if shown else "",
            reference=_highlighted(view.problem.source),
            styles=Markup(_styles()),
            ratio_text=ratio_text,
            repeat=repeat_command(view),
        )
    )


def repeat_command(view: RunView) -> str:
    """The command that runs this search again on fresh inputs."""
    shape = f" --shape {view.problem.shape}" if view.problem.shape else ""
    return f"kernelwright optimize {view.problem.origin} --device {view.device}{shape}"


def _bandwidth(described: Described, median_ms: float) -> str:
    rate = described.bytes_least / (median_ms * 1e-3) / 1e9
    return f"{described.bytes_least / 2**20:.1f} MiB must move at least; that is {rate:.4g} GB/s at the measured time"


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("kernelwright.agent.ui", "."),
        undefined=StrictUndefined,
        autoescape=select_autoescape(["html", "j2"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _highlighted(source: str) -> Markup:
    return Markup(highlight(source, PythonLexer(), HtmlFormatter(cssclass="code")))


def _styles() -> str:
    light = HtmlFormatter(style="default").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".code")
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
