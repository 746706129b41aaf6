"""Child process of the Triton back end: import the candidate, let it launch on a stand-in device, report its kernels.

`python -m kernelwright.stages.compile.triton_child REQUEST` reads and writes JSON beside the request file. It starts
with `candidate.py` in the working directory and ends with `answer.json` there.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.kernelbench.contract import load
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.compile.process import end_with_parent
from kernelwright.stages.compile.standin import is_limit_of_standin, standin_device
from kernelwright.stages.compile.triton_driver import RecordingDriver

CANDIDATE = "candidate.py"


def import_candidate(path: Path) -> ModuleType:
    """Import a candidate's file. Triton reads a kernel's source from its file, so that the text alone would not do."""
    spec = importlib.util.spec_from_file_location("kernelwright_candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def candidate_traceback(error: BaseException) -> str:
    """The exception with the candidate's own lines only, as `candidate.py:LINE in FUNCTION: TEXT`."""
    lines = [
        f"{CANDIDATE}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == CANDIDATE
    ]
    return "\n".join([*lines, f"{type(error).__name__}: {error}"])


def _record(problem: Problem, capability: int) -> dict[str, Any]:
    """Run the candidate's forward on the stand-in, and say what was compiled: keys ok, log, resources."""
    driver = RecordingDriver(capability)
    driver.install()
    with standin_device("meta", capability), torch.no_grad():
        try:
            init_inputs, inputs = _standin_inputs(problem)
        except Exception as error:  # noqa: BLE001  the process boundary; and a problem's failure is not the candidate's
            return _answer(driver, True, f"not compiled ahead, the problem's inputs need a device: {error}")
        try:
            import_candidate(Path(CANDIDATE)).ModelNew(*init_inputs).to("cuda")(*inputs)
        except Exception as error:  # noqa: BLE001  the process boundary: whatever the candidate raises is the answer
            log = candidate_traceback(error)
            if driver.compiling or type(error).__module__.startswith("triton."):
                return _answer(driver, False, f"kernel {driver.kernel} on sm_{capability}: {log}")
            if is_limit_of_standin(error):
                return _answer(driver, True, f"not compiled ahead of its first call, which needs a device: {log}")
            return _answer(driver, False, log)
    return _answer(driver, True, "" if driver.launches else "forward launched no Triton kernel")


def _standin_inputs(problem: Problem) -> tuple[list[Any], list[Any]]:
    """The problem's init inputs and inputs, their tensors on the stand-in."""
    contract = load(problem)
    made = ([*contract.get_init_inputs()], [*contract.get_inputs()])
    init_inputs, inputs = ([v.to("cuda") if isinstance(v, torch.Tensor) else v for v in values] for values in made)
    return init_inputs, inputs


def _answer(driver: RecordingDriver, ok: bool, message: str) -> dict[str, Any]:
    log = "\n".join([*driver.launches, message]).strip()
    return {"ok": ok, "log": log, "resources": [to_json(r) for r in driver.resources]}


def main() -> None:
    """Answer the request named on the command line."""
    end_with_parent()
    request = json.loads(Path(sys.argv[1]).read_text())
    answer = _record(from_json(Problem, request["problem"]), request["capability"])
    Path("answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
