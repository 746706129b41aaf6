"""Triton candidates, compiled for a GPU that need not be there."""

import pytest

from kernelwright.stages.compile import triton_cache
from kernelwright.stages.compile.target import gpu_capability, shared_limit_bytes
from kernelwright.stages.types import Backend, Candidate

TRITON = Backend.TRITON


def test_softmax_of_a_gibibyte_compiles_with_its_resources(bench):
    text = bench.source("softmax_triton")
    result = bench.compile(text, TRITON, of="softmax")
    assert result.ok, result.log
    (kernel,) = result.resources
    assert kernel.kernel == "softmax_rows"
    assert kernel.target.startswith(f"sm_{gpu_capability()}")
    assert 16 <= kernel.registers <= 255
    assert 0 < kernel.shared_bytes < 1024
    assert kernel.spill_bytes == 0
    assert "grid=(65536, 1, 1) num_warps=8" in result.log
    assert bench.compile(text, TRITON, of="softmax").cached
    cubins = triton_cache(Candidate(text, TRITON, "test"), bench.folder).rglob("softmax_rows.cubin")
    assert len(list(cubins)) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("tl.exp(values - -> tl.exp(valves -", ["softmax_rows", "at 5:", "valves is not defined"]),
        ("[(rows,)] -> [(1, rows)]", ["grid (1, 65536, 1)", "limit: 65535"]),
        ("rows, columns = x.shape -> rows, columns = x.sape", ["candidate.py:22 in forward", "AttributeError"]),
    ],
)
def test_errors_name_kernel_and_line(bench, change, told):
    result = bench.compile(bench.source("softmax_triton", a=change), TRITON, of="softmax")
    assert not result.ok
    for words in told:
        assert words in result.log


def test_pipeline_that_outgrows_shared_memory_is_refused(bench):
    fits = bench.compile(bench.source("matmul_triton"), TRITON, of="matmul")
    assert fits.ok, fits.log
    result = bench.compile(bench.source("matmul_triton", a="STAGES = 3 -> STAGES = 9"), TRITON, of="matmul")
    assert not result.ok
    (kernel,) = result.resources
    assert kernel.shared_bytes > shared_limit_bytes(gpu_capability()) >= fits.resources[0].shared_bytes
    assert "matmul_tiles" in result.log
    assert str(kernel.shared_bytes) in result.log


@pytest.mark.slow
def test_autotuned_configuration_that_does_not_fit_is_passed_over(bench):
    configurations = "[triton.Config({}, num_warps=w) for w in (4, 64)]"
    tuned = f"@triton.jit -> @triton.autotune({configurations}, key=['columns'])\n@triton.jit"
    text = bench.source("softmax_triton", a=tuned, b=", num_warps=8 -> ")
    result = bench.compile(text, TRITON, of="softmax")
    assert result.ok, result.log
    assert len(result.resources) == 2
    assert "num_warps=4" in result.log
    assert "num_warps=64" not in result.log


@pytest.mark.slow
def test_forward_that_asks_for_values_waits_for_the_device(bench):
    text = bench.source("softmax_triton", a="assert x.is_cuda -> assert x.max().item() > 0")
    result = bench.compile(text, TRITON, of="softmax")
    assert result.ok
    assert result.resources == ()
    assert "not compiled ahead" in result.log


def test_hanging_import_is_ended_with_its_process_group(bench):
    text = bench.source("softmax_triton", a="import torch -> import time; time.sleep(600); import torch")
    result = bench.compile(text, TRITON, of="softmax", deadline_s=2)
    assert not result.ok
    assert "compiler exceeded 2 s" in result.log


@pytest.mark.slow
def test_candidate_that_ends_the_build_gives_no_result(bench):
    text = bench.source("softmax_triton", a="import torch -> import os; os._exit(0); import torch")
    result = bench.compile(text, TRITON, of="softmax")
    assert not result.ok
    assert "exit code 0 and no result" in result.log


@pytest.mark.slow
def test_crash_names_the_signal(bench):
    text = bench.source("softmax_triton", a="import torch -> import os; os.abort(); import torch")
    assert "SIGABRT" in bench.compile(text, TRITON, of="softmax").log
