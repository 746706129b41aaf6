"""A process that forks a child for each candidate to inspect, as the sandbox does: hooks stay in the child.

`python server.py` reads one JSON request a line (`path`, `device`) and answers one JSON report a line. A candidate's
file defines `ModelNew` and `get_inputs`.
"""

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path

import torch
import triton
import triton.language  # noqa: F401

from kernelwright.stages.sandbox.inspect import Inspection


def inspect(path: Path, device: str) -> dict:
    inspection = Inspection(path, device)
    spec = importlib.util.spec_from_file_location("candidate", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    torch.manual_seed(1)
    with torch.device(device):
        arguments, others = module.get_inputs(), module.get_inputs()
        call = module.ModelNew().to(device)
    return inspection.report(call, arguments, others)


def answer(request: dict) -> dict:
    try:
        return inspect(Path(request["path"]), request["device"])
    except Exception:
        return {"error": traceback.format_exc()}


def main() -> None:
    for line in sys.stdin:
        if os.fork() == 0:
            print(json.dumps(answer(json.loads(line))), flush=True)
            os._exit(0)
        status = os.wait()[1]
        if status:
            print(json.dumps({"error": f"the child ended with status {status}"}), flush=True)


if __name__ == "__main__":
    main()
