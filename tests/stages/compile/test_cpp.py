"""C++ candidates, built by the real g++."""

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.compile.cpp import refused_flag
from kernelwright.stages.types import Backend


def load(path, build, monkeypatch):
    """Import a candidate's file as its user would, with KERNELWRIGHT_BUILD naming its folder."""
    monkeypatch.setenv("KERNELWRIGHT_BUILD", str(build))
    spec = importlib.util.spec_from_file_location("candidate_under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_candidate_finds_the_library_built_for_it(bench, tmp_path, monkeypatch):
    text = bench.source("relu_cpp")
    result = bench.compile(text, Backend.CPP, of="relu")
    assert result.ok
    assert not result.cached
    (tmp_path / "candidate.py").write_text(text)
    module = load(tmp_path / "candidate.py", bench.home(text, Backend.CPP), monkeypatch)
    x = torch.randn(64, 33)
    assert torch.equal(module.ModelNew()(x), torch.relu(x))


def test_syntax_error_names_the_line(bench):
    result = bench.compile(bench.source("relu_cpp", a="int64_t n) -> int64_t n"), Backend.CPP, of="relu")
    assert not result.ok
    assert "candidate.cpp:3:" in result.log
    assert "error: expected" in result.log
    assert str(bench.folder) not in result.log


def test_warnings_of_a_good_build_are_kept(bench):
    result = bench.compile(bench.source("relu_cpp", a="#pragma omp -> int unused; #pragma omp"), Backend.CPP, of="relu")
    assert not result.ok  # a pragma must begin its line, so this is no warning
    text = bench.source("relu_cpp", a="    #pragma omp -> int unused;\n    #pragma omp")
    result = bench.compile(text, Backend.CPP, of="relu")
    assert result.ok
    assert "unused variable" in result.log


def test_long_log_keeps_its_head_and_its_tail(bench):
    text = bench.source("relu_cpp", a="int64_t n) { -> int64_t n) { first_error; " + "again(n); " * 400)
    result = bench.compile(text, Backend.CPP, of="relu")
    assert "first_error" in result.log
    assert "characters left out" in result.log
    assert len(result.log) < 9000


def test_python_syntax_error_is_found_before_any_compiler_runs(bench):
    result = bench.compile(bench.source("relu_cpp", a="import torch -> import import"), Backend.CPP, of="relu")
    assert not result.ok
    assert "candidate.py:9: SyntaxError" in result.log


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("CPP_SOURCE = r -> OTHER = r", "no module-level literal CPP_SOURCE"),
        ("CPP_FLAGS = -> FLAGS =", "no module-level literal CPP_FLAGS"),
        ("CPP_FLAGS = [ -> CPP_FLAGS = [os.name, ", "CPP_FLAGS must be a literal"),
        ("CPP_FLAGS = [ -> CPP_FLAGS = [1, ", "CPP_FLAGS is not a list of strings"),
        ('"-fopenmp" -> "-fplugin=evil.so"', "'-fplugin=evil.so' is not allowed"),
    ],
)
def test_unusable_literals_are_the_candidates_fault(bench, change, told):
    result = bench.compile(bench.source("relu_cpp", a=change), Backend.CPP, of="relu")
    assert not result.ok
    assert told in result.log


def test_flags_that_read_or_write_files_are_refused():
    harmful = (
        "-o", "-oout", "-include", "-I/etc", "-B.", "-specs=x", "@file", "-wrapper", "-fplugin=x", "-fdump-tree-all",
        "-fprofile-use=x", "-fmodule-mapper=|sh", "-fuse-ld=gold", "-Wl,-rpath,x", "-Wa,x", "-Wp,-MD,x", "-lssl", "-L.",
        "-x", "file.cpp", "-save-temps", "-fopt-info-vec=x", "-Xlinker", "-imacros", "-fstack-usage", "-MD", "-dM",
    )  # fmt: skip
    harmless = (
        "-O3", "-Ofast", "-march=native", "-mavx512f", "-mprefer-vector-width=512", "-ffast-math", "-fno-math-errno",
        "-fopenmp", "-fopenmp-simd", "-funroll-loops", "-ffp-contract=fast", "-std=c++20", "-DN=4096", "-DNDEBUG",
        "-Wall", "-Wno-unused", "-Werror", "-lmvec", "-lm", "-lgomp", "-lpthread", "-fvect-cost-model=unlimited",
    )  # fmt: skip
    assert [flag for flag in harmful if refused_flag([flag]) is None] == []
    assert [flag for flag in harmless if refused_flag([flag]) is not None] == []


def test_deadline_ends_the_compiler_and_is_not_remembered(bench):
    endless = bench.source("relu_cpp", a='extern "C" -> #include __FILE__\nextern "C"')
    # Every include doubles what is left to read: the compiler would run for hours before its own limit of 200 levels.
    endless = endless.replace("#include __FILE__", "#include __FILE__\n#include __FILE__")
    for _ in range(2):
        result = bench.compile(endless, Backend.CPP, of="relu", deadline_s=0.5)
        assert not result.ok
        assert not result.cached
        assert "compiler exceeded 0.5 s" in result.log


def test_second_call_is_answered_from_the_cache(bench):
    text = bench.source("relu_cpp")
    first = bench.compile(text, Backend.CPP, of="relu")
    second = bench.compile(text, Backend.CPP, of="relu")
    assert second.cached
    assert second.ok == first.ok
    assert second.log == first.log
    assert second.seconds == first.seconds


def test_failure_is_cached_too(bench):
    text = bench.source("relu_cpp", a="int64_t n) -> int64_t n")
    assert not bench.compile(text, Backend.CPP, of="relu").cached
    again = bench.compile(text, Backend.CPP, of="relu")
    assert again.cached
    assert "error: expected" in again.log


@pytest.mark.parametrize("file", ["compilation.json", "*.so"])
@pytest.mark.parametrize("keep", [0, 40])
def test_truncated_entry_is_built_again_once(bench, file, keep):
    text = bench.source("relu_cpp")
    bench.compile(text, Backend.CPP, of="relu")
    (path,) = bench.home(text, Backend.CPP).glob(file)
    path.write_bytes(path.read_bytes()[:keep])
    rebuilt = bench.compile(text, Backend.CPP, of="relu")
    assert rebuilt.ok
    assert not rebuilt.cached
    assert bench.compile(text, Backend.CPP, of="relu").cached


def test_entry_of_another_kind_is_a_miss(bench):
    text = bench.source("relu_cpp")
    bench.compile(text, Backend.CPP, of="relu")
    entry = bench.home(text, Backend.CPP) / "compilation.json"
    for content in (
        "[]",
        "null",
        json.dumps({"stamp": {}}),
        json.dumps({"stamp": 3, "artefacts": [], "compilation": 4}),
    ):
        entry.write_text(content)
        assert not bench.compile(text, Backend.CPP, of="relu").cached


def test_same_source_for_another_problem_or_back_end_is_not_mistaken(bench):
    text = bench.source("relu_cpp")
    bench.compile(text, Backend.CPP, of="relu")
    assert not bench.compile(text, Backend.CPP, of="softmax").cached
    assert bench.compile(text, Backend.TORCH, of="softmax").backend is Backend.TORCH


def test_builders_of_the_same_candidate_do_not_collide(bench):
    text = bench.source("relu_cpp")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: bench.compile(text, Backend.CPP, of="relu"), range(4)))
    assert all(r.ok for r in results)
    assert bench.compile(text, Backend.CPP, of="relu").cached
    left = sorted(p.name.split(".")[-1] for p in bench.home(text, Backend.CPP).iterdir())
    assert left == ["json", "so"]


def test_missing_compiler_is_the_machines_fault(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match=r"g\+\+ was not found"):
        bench.compile(bench.source("relu_cpp"), Backend.CPP, of="relu")


def test_compiler_sees_no_secret(bench, monkeypatch):
    from kernelwright.stages.compile.process import python_environment

    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert "sk-secret" not in python_environment(bench.folder).values()


def test_library_candidate_needs_no_compiler(bench):
    result = bench.compile(bench.source("relu").replace("Model(", "ModelNew("), Backend.TORCH, of="relu")
    assert result.ok
    assert result.resources == ()
