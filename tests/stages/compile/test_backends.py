"""What every back end is held to: there is one for each kind of candidate, and whatever it is given, it answers."""

from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.compile import BUILDERS, build_folder, compile_candidate
from kernelwright.stages.types import Backend, Candidate, Compilation

RELU = Problem("relu", (Path(__file__).parent / "candidates" / "relu.py").read_text(), "relu.py")

every_backend = pytest.mark.parametrize("backend", BUILDERS)


def built(backend: Backend, source: str, folder: Path) -> Compilation:
    candidate = Candidate(source=source, backend=backend, proposer="test")
    result = compile_candidate(candidate, RELU, folder, device="cpu", deadline_s=60.0)
    left = [path.name for path in build_folder(candidate, folder).iterdir() if path.name.startswith("build-")]
    assert left == [], "scratch folders are removed"
    return result


def test_every_kind_of_candidate_has_a_back_end() -> None:
    assert set(BUILDERS) == set(Backend)


@every_backend
def test_a_file_that_is_no_python_is_refused_with_its_line(backend: Backend, tmp_path: Path) -> None:
    result = built(backend, "class ModelNew:\n    def\n", tmp_path)
    assert not result.ok
    assert "candidate.py:2" in result.log


@every_backend
def test_a_file_without_what_the_back_end_builds_is_answered_and_the_answer_kept(
    backend: Backend, tmp_path: Path
) -> None:
    first, again = (built(backend, "import torch\n", tmp_path) for _ in range(2))
    # Only a candidate without a kernel of its own has nothing to be missed here.
    assert first.ok == (backend is Backend.TORCH)
    assert first.ok or first.log
    assert again.cached
    assert (again.ok, again.log, again.backend) == (first.ok, first.log, backend)
