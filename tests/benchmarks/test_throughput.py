"""The throughput script: what it makes, what it counts, and what becomes of the figures. No rate is asserted."""

import ast
import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.kernelbench import contract
from kernelwright.stages.compile.deferred import calls_extension_loader
from kernelwright.stages.execute import reference
from kernelwright.stages.execute.job import Effort
from kernelwright.stages.measure import devices

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def throughput() -> ModuleType:
    for name in ("results", "throughput_candidates"):
        load(name)
    return load("throughput")


@pytest.fixture(scope="module")
def candidates(throughput: ModuleType) -> ModuleType:
    return sys.modules["throughput_candidates"]


def checkout(folder: Path, text: str) -> Path:
    package = folder / "src" / "kernelbench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from openai import OpenAI\nfrom litellm import completion\n")
    (package / "eval.py").write_text(text)
    return folder


EVALUATOR = """
from types import SimpleNamespace

def eval_kernel_against_ref(original_model_src, custom_model_src, num_correct_trials, num_perf_trials, **options):
    assert options["backend"] in ("triton", "cuda") and options["measure_performance"]
    return SimpleNamespace(compiled=True, correctness="wrong" not in custom_model_src, runtime=float(num_perf_trials))
"""


def test_candidates_are_distinct_files_that_parse(candidates: ModuleType) -> None:
    made = [candidates.candidate(candidates.RELU, kind, "tag", i) for kind in candidates.KINDS for i in range(6)]
    assert len({c.hash for c in made}) == len(made)
    for one in made:
        names = {n.name for n in ast.parse(one.source).body if isinstance(n, ast.ClassDef)}
        assert names == {"ModelNew"}
    assert [kind for kind in candidates.KINDS if _loads_inline(candidates, kind)] == ["cuda_inline"]


def _loads_inline(candidates: ModuleType, kind: str) -> bool:
    return calls_extension_loader(candidates.candidate(candidates.RELU, kind, "tag", 0).source)


def test_every_small_problem_runs(candidates: ModuleType) -> None:
    for operation in candidates.SMALL:
        loaded = contract.load(candidates.problem(operation, 4, 8))
        model, inputs = contract.instantiate(loaded, "cpu", 0)
        assert model(*inputs).shape == (4, 8)


def test_our_side_counts_what_was_verified(throughput: ModuleType, candidates: ModuleType) -> None:
    of = candidates.problem(candidates.RELU, 64, 64)
    right = reference.as_candidate(of)
    wrong = replace(right, source=right.source.replace("torch.relu(x)", "torch.relu(x) + 1"))
    effort = Effort(thorough=False, screen_rounds=0, rounds=2, region_ms=1.0, timeout_s=30.0)
    ours = throughput.measure_ours("triton", [(of, right), (of, wrong)], "cpu", effort)
    assert (ours.correct, ours.statuses) == (1, {"correct": 1, "incorrect": 1})
    assert ours.timed_calls >= 2
    assert ours.seconds_each == ours.seconds


def test_their_side_is_called_with_our_number_of_calls_in_a_process_each(
    throughput: ModuleType, candidates: ModuleType, tmp_path: Path
) -> None:
    folder = checkout(tmp_path, EVALUATOR)
    of = candidates.problem(candidates.RELU, 4, 8)
    each = [reference.as_candidate(of, mark) for mark in ("a", "wrong")]
    first, theirs = throughput.measure_theirs(folder, "cuda_inline", of, each, 321)
    assert (len(first.seconds), first.failures) == (1, ())
    assert len(theirs.seconds) == 1
    assert "'runtime_ms': 321.0" in theirs.failures[0]


def test_a_child_that_fails_is_a_failure_with_its_words(
    throughput: ModuleType, candidates: ModuleType, tmp_path: Path
) -> None:
    folder = checkout(tmp_path, "raise RuntimeError('no such library')\n")
    of = candidates.problem(candidates.RELU, 4, 8)
    (theirs,) = throughput.measure_theirs(folder, "triton", of, [reference.as_candidate(of)], 1)
    assert theirs.seconds == ()
    assert "no such library" in theirs.failures[0]


def test_ratios_name_what_they_compare(throughput: ModuleType, tmp_path: Path) -> None:
    where = devices.environment("cpu")
    ours = tuple(
        throughput.Ours(kind, seconds, 10, {"correct": 10}, 9000)
        for kind, seconds in (("triton", 10.0), ("cuda_inline", 100.0), ("cuda", 5.0), ("small", 6.0))
    )
    theirs = (
        throughput.Theirs("triton", 100, (7.0, 7.0), ()),
        throughput.Theirs("triton", 9000, (20.0,), ()),
        throughput.Theirs("cuda_inline", 9000, (60.0, 50.0), ()),
    )
    log = tmp_path / "log.json"
    log.write_text(json.dumps(throughput.to_json(throughput.Log(where, ours, theirs))))
    command = [sys.executable, str(FOLDER / "throughput.py"), "report", str(log), "--out", str(tmp_path / "rows.json")]
    subprocess.run(command, check=True, capture_output=True)
    found = {r["metric"]: r["value"] for r in json.loads((tmp_path / "rows.json").read_text())}
    assert found["throughput.triton.ratio"] == 20.0
    assert found["throughput.triton.ratio_default_calls"] == 7.0
    assert found["throughput.cuda_inline.ratio"] == 5.5
    assert found["throughput.cuda.ratio"] == 110.0
    assert found["throughput.per_minute"] == 100.0


def test_a_folder_that_is_no_checkout_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "throughput.py"), "run", "--kernelbench", str(tmp_path), "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no src/kernelbench/eval.py" in done.stderr
    assert "Traceback" not in done.stderr
