"""Back ends that work in a Python child: hand it a request as JSON, and read the answer that it leaves."""

from __future__ import annotations

import json
import sys
from typing import Any

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.codec import from_json
from kernelwright.stages.compile.base import Built, Task, unfinished
from kernelwright.stages.compile.process import Finished, run_limited
from kernelwright.stages.types import KernelResources


def run_child(module: str, task: Task, request: dict[str, Any], environment: dict[str, str]) -> Built:
    """Run `python -m module` in the scratch folder, which holds `candidate.py` and `request.json`.

    It leaves `answer.json`: `ok`, `log`, `resources`, and the names of its `artefacts`; or `environment_fault` alone, a
    sentence that says what this machine lacks.
    """
    (task.scratch / "candidate.py").write_text(task.candidate.source)
    (task.scratch / "request.json").write_text(json.dumps(request))
    argv = [sys.executable, "-m", module, "request.json"]
    finished = run_limited(argv, cwd=task.scratch, deadline_s=task.deadline_s, env=environment)
    if ended := unfinished(finished, task.deadline_s):
        return ended
    answer = task.scratch / "answer.json"
    if not answer.exists():
        return _without_answer(finished)
    data = json.loads(answer.read_text())
    if fault := data.get("environment_fault"):
        raise EnvironmentFault(fault)
    return Built(
        ok=data["ok"],
        log="\n".join(filter(None, [data["log"], finished.output.strip()])),
        resources=tuple(from_json(KernelResources, r) for r in data["resources"]),
        artefacts=tuple(task.scratch / name for name in data.get("artefacts", ())),
    )


def _without_answer(finished: Finished) -> Built:
    return Built(ok=False, log=f"the build ended with exit code {finished.returncode} and no result\n{finished.output}")
