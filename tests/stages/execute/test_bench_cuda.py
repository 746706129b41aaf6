"""The bench on a GPU: shared device memory, the clock that no runner touches, and kernels that break the device."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.compile import compile_candidate
from kernelwright.stages.execute import building
from kernelwright.stages.execute.bench import Bench
from kernelwright.stages.execute.job import Effort, Job, JobResult
from kernelwright.stages.sandbox.pool import Zygote
from kernelwright.stages.types import Backend, Candidate, Compilation, Status

pytestmark = pytest.mark.gpu

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(4096, 2048)]


def get_init_inputs():
    return [2048]
"""
TRITON = """
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, out_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + col)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / COLUMNS + 1e-6)
    tl.store(out_ptr + (row + SHIFT) * COLUMNS + col, x * scale * tl.load(weight_ptr + col))


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rmsnorm_kernel[(x.shape[0],)](x, self.weight, out, COLUMNS=2048, num_warps=8)
        return out
"""
RIGHT = TRITON.replace("SHIFT", "0")
PROBLEM = Problem("normed", REFERENCE, "normed.py")
EFFORT = Effort(screen_rounds=0, rounds=11, timeout_s=60.0)


@pytest.fixture(scope="module")
def bench(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    first = Job("first", PROBLEM, Candidate("", Backend.TRITON, "test"), "cuda", 11, EFFORT, baselines=("eager",))
    made = Bench(first, zygote, tmp_path_factory.mktemp("cache"))
    yield made
    made.close()


def evaluate(bench: Bench, text: str, effort: Effort = EFFORT) -> JobResult:
    candidate = Candidate(REFERENCE + text, Backend.TRITON if "@triton" in text else Backend.TORCH, "test")
    job = Job("key", PROBLEM, candidate, "cuda", 11, effort)
    return bench.evaluate(job, Compilation(True, Backend.TRITON, 0.0), lambda stage: None)


def forward(body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"\n\nclass ModelNew(Model):\n    def forward(self, x):\n{lines}"


def test_a_right_kernel_is_correct_and_faster(bench: Bench) -> None:
    result = evaluate(bench, RIGHT)
    assert result.verdict.status is Status.CORRECT, result.verdict.message
    assert result.measurement is not None
    assert result.measurement.speedups["eager"].low > 1.02


def test_a_triton_candidate_finds_the_driver_library_compiled(bench: Bench) -> None:
    candidate = Candidate(REFERENCE + RIGHT + "\n# another file\n", Backend.TRITON, "test")
    job = Job("key", PROBLEM, candidate, "cuda", 11, EFFORT)
    assert bench.evaluate(job, Compilation(True, Backend.TRITON, 0.0), lambda stage: None).verdict.message == ""
    (ours,) = bench.cache.glob("triton-driver-*/*/cuda_utils*.so")
    own = Path(building.caches(candidate, bench.cache)["TRITON_CACHE_DIR"])
    (found,) = own.rglob("cuda_utils*.so")
    assert found.read_bytes() == ours.read_bytes()


def test_the_reference_beside_itself_is_no_gain(bench: Bench) -> None:
    result = evaluate(bench, forward("return super().forward(x)"))
    assert result.measurement is not None
    ratio = result.measurement.speedups["eager"]
    assert not ratio.low > 1.02
    assert not ratio.high < 1 / 1.02


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return super().forward(x.bfloat16()).float()", Status.INCORRECT),
        ("return torch.zeros_like(x)", Status.INCORRECT),
        ("return torch.empty_like(x)", Status.INCORRECT),
        ("return super().forward(x).cpu()", Status.INCORRECT),
        ("y = super().forward(x)\nx.zero_()\nreturn y", Status.INCORRECT),
        ("return torch.empty(1 << 40, dtype=torch.uint8, device='cuda')", Status.OOM),
        ("torch._assert_async(x.sum() > 1e30)\nreturn super().forward(x)", Status.CRASH),
    ],
)
def test_what_is_wrong_gets_its_verdict(bench: Bench, body: str, status: Status) -> None:
    assert evaluate(bench, forward(body)).verdict.status is status


def test_an_illegal_access_retires_its_runner_and_harms_nobody_else(bench: Bench) -> None:
    wild = evaluate(bench, TRITON.replace("SHIFT", "(1 << 31)"))
    assert wild.verdict.status is Status.CRASH
    assert evaluate(bench, RIGHT).verdict.status is Status.CORRECT


def test_a_kernel_that_never_ends_is_a_hang_and_the_device_goes_on(bench: Bench) -> None:
    endless = RIGHT.replace(
        "    scale =", "    while tl.load(out_ptr, volatile=True) != 12345.0:\n        x = x + 0.0\n    scale ="
    )
    assert evaluate(bench, endless, replace(EFFORT, timeout_s=8.0)).verdict.status is Status.HANG
    assert evaluate(bench, RIGHT).verdict.status is Status.CORRECT


def test_the_clock_sees_what_the_device_does_and_not_what_the_runner_says(bench: Bench) -> None:
    # A sleep of a known number of cycles on the device: nothing of it shows in the runner's own time.
    quiet = evaluate(bench, RIGHT)
    busy = evaluate(bench, RIGHT.replace("        out =", "        torch.cuda._sleep(2_000_000)\n        out ="))
    assert quiet.measurement is not None
    assert busy.measurement is not None
    difference_ms = busy.measurement.candidate.median_ms - quiet.measurement.candidate.median_ms
    # 2 million cycles at any clock between 0.5 and 4 GHz.
    assert 0.5 < difference_ms < 4.0


def test_a_cuda_candidate_goes_the_whole_way(zygote: Zygote, tmp_path: Path) -> None:
    here = Path(__file__).parents[1] / "compile" / "candidates"
    problem = Problem("relu", (here / "relu.py").read_text(), "relu.py")
    candidate = Candidate((here / "relu_cuda.py").read_text(), Backend.CUDA, "test")
    compilation = compile_candidate(candidate, problem, tmp_path, device="cuda", deadline_s=60.0)
    assert compilation.ok, compilation.log
    job = Job("key", problem, candidate, "cuda", 3, EFFORT, baselines=("eager",))
    made = Bench(job, zygote, tmp_path)
    result = made.evaluate(job, compilation, lambda stage: None)
    made.close()
    assert result.verdict.status is Status.CORRECT, result.verdict.message
