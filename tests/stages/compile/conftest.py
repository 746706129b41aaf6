"""The workbench: candidates and problems on disk, compiled in a folder of the test's own."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.compile import build_folder, compile_candidate
from kernelwright.stages.types import Backend, Candidate, Compilation

CANDIDATES = Path(__file__).parent / "candidates"


@dataclass(frozen=True)
class Workbench:
    folder: Path

    def source(self, name: str, **replaced: str) -> str:
        """A file's text; each replacement is `NAME="old -> new"`, and old must be there."""
        text = (CANDIDATES / f"{name}.py").read_text()
        for change in replaced.values():
            old, new = change.split(" -> ")
            assert old in text
            text = text.replace(old, new)
        return text

    def problem(self, name: str) -> Problem:
        return Problem(name=name, source=self.source(name), origin=f"{name}.py")

    def compile(self, text: str, backend: Backend, *, of: str, deadline_s: float = 120.0) -> Compilation:
        """Compile a candidate's source for the problem `of`."""
        device = "cpu" if backend is Backend.CPP else "cuda"
        candidate = Candidate(source=text, backend=backend, proposer="test")
        return compile_candidate(candidate, self.problem(of), self.folder, device=device, deadline_s=deadline_s)

    def home(self, text: str, backend: Backend) -> Path:
        """The candidate's own folder."""
        return build_folder(Candidate(source=text, backend=backend, proposer="test"), self.folder)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path / "build")
