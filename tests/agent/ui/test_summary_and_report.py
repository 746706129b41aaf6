import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kernelwright.agent.outcome import Outcome
from kernelwright.agent.ui import summary
from kernelwright.agent.ui.report import render
from kernelwright.agent.ui.summary import Paths
from kernelwright.agent.ui.view import RunView, fold_records
from kernelwright.stages.archive import Described, Record
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.types import Ratio, Status

from .events import candidate, empty, right, wrong

PATHS = Paths(Path("archive.db"), Path("runs/softmax-1/report.html"), Path("runs/softmax-1/best_model.py"))
DESCRIBED = Described("softmax[f32]", "def forward(x): ...", 1_000_000, 2**20, "export")


def record(number: int, result: JobResult, stage: str) -> Record:
    return Record(candidate(number), result, "softmax-1", stage, datetime.now(UTC))


def story(kind: str) -> tuple[RunView, Outcome]:
    """A run with a winner, one without, or one for which nothing could be proposed."""
    if kind == "nothing":
        return empty(), Outcome((), (), None)
    ratio = Ratio(3.31, 3.2, 3.61) if kind == "winner" else Ratio(1.03, 0.98, 1.08)
    searched = (
        record(0, right(candidate(0), ratio), "search"),
        record(1, wrong(candidate(1), Status.INCORRECT, "<b>largest error</b> 0.3"), "search"),
    )
    confirmed = (record(0, right(candidate(0), ratio), "confirm"),)
    found = Outcome(searched, confirmed, confirmed[0] if kind == "winner" else None)
    return fold_records(empty(), found), found


def test_the_last_lines_of_a_gain() -> None:
    lines = summary.lines(*story("winner"), PATHS)
    text = "\n".join(lines)
    assert "3.31x [3.20, 3.61] over eager   (95 % interval)" in text
    assert "over compile" in text
    assert "runs/softmax-1/best_model.py" in text
    assert f"kernelwright archive show {candidate(0).hash[:12]}" in text
    assert summary.exit_code(story("winner")[1], "") == 0


def test_the_last_lines_without_a_gain_are_honest() -> None:
    text = "\n".join(summary.lines(*story("none"), PATHS))
    assert "no candidate is faster than eager beyond doubt" in text
    assert "1.03x [0.98, 1.08]" in text
    assert "best_model" not in text
    assert summary.exit_code(story("none")[1], "") == 1
    assert summary.exit_code(story("none")[1], "the budget: 3 USD are spent") == 4
    assert "nobody had a candidate for this module" in "\n".join(summary.lines(*story("nothing"), PATHS))


@pytest.mark.parametrize("kind", ["winner", "none", "nothing"])
def test_the_object_has_its_fixed_shape(kind: str) -> None:
    found = json.loads(json.dumps(summary.as_json(*story(kind), PATHS)))
    assert found["schema"] == "kernelwright.run/1"
    assert {"run", "problem", "verdict", "best", "speedup", "baselines", "exit_code"} <= found.keys()
    if kind == "winner":
        assert found["best"] == {"hash": candidate(0).hash, "path": str(PATHS.winner), "backend": "cpp"}
        assert found["speedup"] == {"over": "eager", "median": 3.31, "low": 3.2, "high": 3.61}
        assert found["verdict"] == "correct"
    else:
        assert found["best"] is None
    if kind == "nothing":
        assert found["speedup"] is None


@pytest.mark.parametrize("kind", ["winner", "none", "nothing"])
def test_the_page_needs_nothing_else(kind: str) -> None:
    view, found = story(kind)
    page = render(view, found, PATHS, DESCRIBED)
    assert not re.search(r"https?://|<script|<link|@import|\bsrc=|url\(", page)
    assert len(page) < 1_000_000
    assert "softmax &lt;odd&gt; &amp; name" in page
    assert "<odd>" not in page
    assert "<b>largest" not in page


def test_the_page_shows_the_evidence_and_the_sources() -> None:
    view, found = story("winner")
    page = render(view, found, PATHS, DESCRIBED)
    assert "3.31x [3.20, 3.61]" in page
    assert "case 0, output 0: largest error" in page
    assert "fused_softmax" in page
    assert "kernelwright optimize softmax.py --device cpu" in page
    assert page.count("<svg") == 2
