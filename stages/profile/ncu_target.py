"""What ncu runs: a process that is told what a runner was told, and calls the candidate once while ncu counts.

`python -m kernelwright.stages.profile.ncu_target FILE` is started from within a runner's confinement, and inherits it.
FILE is JSON: `messages`, as the runner got them, and the `slot` to call the candidate on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from kernelwright.stages.sandbox.protocol import Channel
from kernelwright.stages.sandbox.runner import Runner


def main() -> None:
    """Load the candidate, call it to warm up, and once more between the marks that ncu waits for."""
    told = json.loads(Path(sys.argv[1]).read_text())
    runner = Runner(Channel.pair()[0])
    for message in told["messages"]:
        getattr(runner, f"do_{message['do']}")(message, [])
    calls = {"slots": [told["slot"]]}
    runner.do_begin({"restore": True}, [])
    runner.do_call(calls, [])
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    runner.do_call(calls, [])
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
