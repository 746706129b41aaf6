"""The end of a run: the winner's file, the reports, and what the terminal needs to say."""

from __future__ import annotations

import json

from kernelwright.agent.outcome import Outcome, outcome
from kernelwright.agent.run import Opened
from kernelwright.agent.ui import summary
from kernelwright.agent.ui.report import render
from kernelwright.agent.ui.summary import Paths
from kernelwright.agent.ui.view import RunView
from kernelwright.stages.archive import Archive


def finish(opened: Opened) -> tuple[RunView, Outcome, Paths]:
    """Write `best_model.py` (when there is a winner), `report.html` and `report.json` from what the archive holds."""
    folder = opened.folder
    folder.mkdir(parents=True, exist_ok=True)
    paths = Paths(opened.settings.archive, folder / "report.html", folder / "best_model.py")
    view = opened.view()
    with Archive.open(opened.settings.archive) as archive:
        found = outcome(archive, opened.run)
        info = archive.described(opened.problem.hash)
    if found.winner:
        paths.winner.write_text(found.winner.candidate.source)
    paths.report.write_text(render(view, found, paths, info))
    (folder / "report.json").write_text(json.dumps(summary.as_json(view, found, paths), indent=2) + "\n")
    return view, found, paths
