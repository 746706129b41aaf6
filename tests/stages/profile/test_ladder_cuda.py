"""On a GPU: kernels by name and time, resources, and counters or the reason why there are none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.job import Effort, Job
from kernelwright.stages.execute.local import LocalExecutor
from kernelwright.stages.profile import ncu
from kernelwright.stages.profile.ladder import profile
from kernelwright.stages.profile.report import Bottleneck, Tier
from kernelwright.stages.types import Backend, Candidate

pytestmark = pytest.mark.gpu
CANDIDATES = Path(__file__).parents[1] / "compile" / "candidates"
PROBLEM = (CANDIDATES / "softmax.py").read_text().replace("65536, 4096", "16384, 4096")
MANY_SMALL = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        part = x[:1, :1]
        for _ in range(400):
            part = part + 1.0
        return torch.softmax(x, dim=-1)
"""


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    folder = tmp_path_factory.mktemp("executor")
    made = LocalExecutor(cache=folder / "cache", log=folder / "worker.log")
    yield made
    made.close()


def job(source: str, backend: Backend) -> Job:
    problem = Problem("softmax", PROBLEM, "softmax.py")
    return Job("run/0/1", problem, Candidate(source, backend, "test"), "cuda", 7, Effort(thorough=False), baselines=())


def test_a_triton_kernel_is_seen_on_the_device(executor: LocalExecutor) -> None:
    found = profile(job((CANDIDATES / "softmax_triton.py").read_text(), Backend.TRITON), executor)
    kernel = found.kernels[0]
    assert (kernel.name, kernel.own) == ("softmax_rows", True)
    assert kernel.launches == pytest.approx(1.0)
    assert any(code.kernel == "softmax_rows" and code.registers for code in found.code)
    assert found.finding.bottleneck in (Bottleneck.MEMORY, Bottleneck.LATENCY)
    assert found.tier in (Tier.NCU, Tier.TORCH)
    if found.tier is Tier.NCU:
        assert found.counters[0].kernel.startswith("softmax_rows")
        assert found.counters[0].values[ncu.DRAM] is not None
    else:
        assert found.missing["ncu"]


def test_hundreds_of_small_kernels_are_launch_bound(executor: LocalExecutor) -> None:
    found = profile(job(MANY_SMALL, Backend.TORCH), executor)
    assert sum(kernel.launches for kernel in found.kernels) > 400
    assert found.finding.bottleneck is Bottleneck.LAUNCH
