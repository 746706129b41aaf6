"""CUDA candidates, compiled by NVRTC; with a GPU, run too."""

import importlib.util

import pytest
import torch

from kernelwright.stages.compile.cuda import refused_flag
from kernelwright.stages.compile.cuda_child import program_options
from kernelwright.stages.types import Backend

CUDA = Backend.CUDA
pytest.importorskip("cuda.core", reason="needs cuda-core: pip install 'kernelwright[cuda]'")


def test_relu_compiles_to_a_cubin_with_its_resources(bench):
    text = bench.source("relu_cuda")
    result = bench.compile(text, CUDA, of="relu")
    assert result.ok, result.log
    (kernel,) = result.resources
    assert kernel.kernel == "relu"
    assert kernel.registers > 0
    assert kernel.spill_bytes == 0
    (cubin,) = bench.home(text, CUDA).glob("*.cubin")
    assert cubin.read_bytes().startswith(b"\x7fELF")
    assert bench.compile(text, CUDA, of="relu").cached


def test_error_names_its_line(bench):
    result = bench.compile(bench.source("relu_cuda", a="float4 v = -> flaot4 v ="), CUDA, of="relu")
    assert not result.ok
    assert "candidate.cu(5): error: identifier" in result.log
    assert "flaot4" in result.log


def test_warning_of_a_good_build_is_kept(bench):
    text = bench.source("relu_cuda", a="float4 v = x[i]; -> float4 v = x[i]; int forgotten;")
    result = bench.compile(text, CUDA, of="relu")
    assert result.ok
    assert "forgotten" in result.log
    assert "ptxas" not in result.log


def test_headers_of_cuda_are_found(bench):
    text = bench.source("relu_cuda", a='extern "C" -> #include <cuda_fp16.h>\nextern "C"')
    result = bench.compile(text, CUDA, of="relu")
    assert result.ok, result.log


def test_too_much_static_shared_memory_is_refused(bench):
    hungry = "__shared__ float s[70000]; s[threadIdx.x] = x[i].x; __syncthreads(); float4 v = x[i]; v.x = s[9];"
    result = bench.compile(bench.source("relu_cuda", a=f"float4 v = x[i]; -> {hungry}"), CUDA, of="relu")
    assert not result.ok
    assert "'relu' uses too much shared data" in result.log


def test_missing_source_and_forbidden_flags_are_the_candidates_fault(bench):
    result = bench.compile(bench.source("relu_cuda", a="CUDA_SOURCE = r -> SOURCE = r"), CUDA, of="relu")
    assert "no module-level literal CUDA_SOURCE" in result.log
    text = bench.source("relu_cuda", a='["--use_fast_math"] -> ["--create-pch=x"]')
    assert "'--create-pch=x' is not allowed" in bench.compile(text, CUDA, of="relu").log
    assert refused_flag(["-I/etc", "-DN=4"]) == "-I/etc"


def test_flags_become_options_of_cuda_core():
    flags = ["--use_fast_math", "-DN=4", "-DFAST", "--maxrregcount=64", "-std=c++20", "--fmad=false"]
    assert refused_flag(flags) is None
    assert program_options(flags) == {
        "use_fast_math": True,
        "define_macro": [("N", "4"), "FAST"],
        "max_register_count": 64,
        "std": "c++20",
        "fma": False,
    }


@pytest.mark.gpu
@pytest.mark.parametrize("prebuilt", [True, False])
def test_relu_runs_with_and_without_the_built_cubin(bench, tmp_path, monkeypatch, prebuilt):
    text = bench.source("relu_cuda")
    if prebuilt:
        assert bench.compile(text, CUDA, of="relu").ok
    monkeypatch.setenv("KERNELWRIGHT_BUILD", str(bench.home(text, CUDA)))
    (tmp_path / "candidate.py").write_text(text)
    spec = importlib.util.spec_from_file_location("candidate_under_test", tmp_path / "candidate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.randn(512, 1024, device="cuda")
    assert torch.equal(module.ModelNew()(x), torch.relu(x))
