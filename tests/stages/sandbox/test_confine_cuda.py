"""A GPU works inside all measures, and kernels that were compiled in the build phase run in the other."""

from pathlib import Path

import pytest

from kernelwright.stages.sandbox import census
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Zygote
from tests.stages.sandbox.trial import attempt, forward, load

pytestmark = pytest.mark.gpu

KERNEL = """
import triton, triton.language as tl
@triton.autotune(configs=[triton.Config({'B': 64}), triton.Config({'B': 128})], key=['n'])
@triton.jit
def fill(p, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(p + i, 2.0, mask=i < n)
"""
CALL = """y = torch.empty(1000, device='cuda')
fill[lambda meta: (triton.cdiv(1000, meta['B']),)](y, 1000)
z = torch.ones(512, 512, device='cuda') @ torch.ones(512, 512, device='cuda')
raise RuntimeError(f'sums {y.sum().item()} {z.mean().item()}')"""


def test_triton_compiles_in_the_build_phase_and_is_found_in_the_run_phase(zygote: Zygote, tmp_path: Path) -> None:
    source = forward(CALL, top=KERNEL)
    early = attempt(zygote, source, Phase.RUN, [tmp_path], device="cuda")
    assert early.kind == "late_build", early.said
    for phase in (Phase.BUILD, Phase.RUN, Phase.RUN):
        trial = attempt(zygote, source, phase, [tmp_path], device="cuda")
        assert "sums 2000.0 512.0" in trial.said
        assert trial.seen == []
        assert trial.changes == []


def test_the_driver_needs_nothing_that_is_denied_and_its_threads_are_idle(zygote: Zygote) -> None:
    runner = zygote.spawn(Phase.RUN)
    try:
        load(runner, forward("return float(torch.ones(3, device='cuda').sum())"), device="cuda")
        for _ in range(5):
            runner.ask("call", 60.0, slots=[0])
            assert census.still_working(runner.pid) == []
        assert all(taken is True for taken in runner.measures.values()) or runner.measures == zygote.measures
    finally:
        runner.kill()
