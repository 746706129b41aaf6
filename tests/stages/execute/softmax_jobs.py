"""Jobs on the small softmax of the core suite, for tests that run them for real."""

from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.execute.job import Effort, Job
from kernelwright.stages.types import Backend, Candidate

PROBLEM = from_spec("core/softmax", shape="tiny")
QUICK = Effort(thorough=False, screen_rounds=0, rounds=5, region_ms=1.0, timeout_s=60.0)

MODULE = """
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        {forward}
"""
FORWARDS = {
    "right": "return torch.softmax(x, dim=-1)",
    "other": "return torch.softmax(x.contiguous(), -1)",
    "wrong": "return torch.softmax(x, dim=0)",
    "endless": "time.sleep(600)",
}


def job(name: str, run: str = "run") -> Job:
    candidate = Candidate(MODULE.format(forward=FORWARDS[name]), Backend.TORCH, "test", directive=name)
    return Job(f"{run}/0/{name}", PROBLEM, candidate, "cpu", 7, QUICK, baselines=("eager",))
