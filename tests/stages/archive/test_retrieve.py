"""Which winners a new problem is shown, in which order, and why."""

import sqlite3
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive import CONFIRM, Archive
from kernelwright.stages.archive.retrieve import Hit, retrieve
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.translate import translate
from kernelwright.stages.translate.graph import OpInfo
from kernelwright.stages.types import Backend, Candidate, Environment, Measurement, Ratio, Status, Timing, Verdict
from tests.stages.archive.old_schema import make

H200 = Environment("cuda", "NVIDIA H200", "580", "2.13.0", "3.8.0", "3.11.7", 16)
H100 = Environment("cuda", "NVIDIA H100 80GB HBM3", "580", "2.13.0", "3.8.0", "3.11.7", 16)
CPU = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)

SOURCE = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return {formula}

def get_inputs():
    return [torch.ones({shape}, dtype=torch.{dtype})]

def get_init_inputs():
    return []
"""


def problem(formula: str, shape: str = "(64, 512)", dtype: str = "float32") -> Problem:
    name = "".join(c if c.isalnum() else "_" for c in formula)
    return Problem(name, SOURCE.format(formula=formula, shape=shape, dtype=dtype), f"{name}.py")


@cache
def info(of: Problem) -> OpInfo:
    return translate(of)


SOFTMAX = problem("F.softmax(x, -1)")
SOFTMAX_LARGE = problem("F.softmax(x, -1)", "(4096, 8192)")
SOFTMAX_HALF = problem("F.softmax(x, -1)", dtype="float16")
RELU = problem("torch.relu(x)")
GELU_SOFTMAX = problem("F.softmax(F.gelu(x), -1)")
PROBLEMS = [SOFTMAX, SOFTMAX_LARGE, SOFTMAX_HALF, RELU, GELU_SOFTMAX]


def judged(of: Candidate, speedup: float, where: Environment, screened: bool = False) -> JobResult:
    timing = Timing((2.0 / speedup,), 2.0 / speedup, 7)
    over = {"eager": Ratio(speedup, speedup - 0.1, speedup + 0.1)}
    measurement = Measurement(timing, {"eager": Timing((2.0,), 2.0, 7)}, over, "clock", screened)
    return JobResult("key", of.hash, Verdict(Status.CORRECT), where, None, measurement)


class Filled:
    """An archive, and how a test fills it."""

    def __init__(self, path: Path) -> None:
        self.archive = Archive.open(path)
        self.count = 0

    def win(
        self,
        of: Problem,
        speedup: float = 2.0,
        where: Environment = H200,
        backend: Backend = Backend.TRITON,
        text: str = "",
        stage: str = CONFIRM,
        screened: bool = False,
    ) -> Candidate:
        """A candidate of a run of its own, found correct."""
        self.count += 1
        run = f"run {self.count}"
        made = Candidate(f"# kernel {self.count}\n", backend, "llm", text or f"attempt {self.count}")
        self.archive.add_problem(of, info(of))
        self.archive.start_run(run, of, where.device, {})
        self.archive.add_proposals(run, 0, [made])
        self.archive.add_result(run, judged(made, speedup, where, screened))
        if stage == CONFIRM:
            self.archive.add_result(run, judged(made, speedup, where), CONFIRM)
        return made

    def hits(self, of: Problem, where: Environment = H200, limit: int = 9, words: str = "") -> list[Hit]:
        return retrieve(self.archive, of, info(of), where, limit=limit, words=words)

    def order(self, of: Problem, where: Environment = H200, words: str = "") -> list[str]:
        return [hit.candidate.hash for hit in self.hits(of, where, words=words)]


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return Filled(tmp_path / "archive.db")


def test_an_empty_archive_has_nothing_to_offer(filled: Filled) -> None:
    assert filled.hits(SOFTMAX) == []


def test_operators_count_before_dtype_and_dtype_before_shape(filled: Filled) -> None:
    mixed, large, half = filled.win(GELU_SOFTMAX, 9.0), filled.win(SOFTMAX_LARGE), filled.win(SOFTMAX_HALF, 5.0)
    own = filled.win(SOFTMAX, 1.5)
    assert filled.order(SOFTMAX) == [c.hash for c in (own, large, half, mixed)]


def test_a_hit_says_why_and_how_fast_it_was(filled: Filled) -> None:
    filled.win(SOFTMAX, 2.0)
    filled.win(SOFTMAX_LARGE, 3.0, H100, stage="search")
    filled.win(GELU_SOFTMAX, 4.0)
    own, large, mixed = filled.hits(SOFTMAX)
    name = SOFTMAX.name
    assert own.reason == (
        f"{name}: this problem's own winner; "
        "2.00x [1.90, 2.10] over eager on NVIDIA H200, measured again on fresh inputs."
    )
    assert large.reason == (
        f"{name}: the same operators (softmax) with another shape; "
        "3.00x [2.90, 3.10] over eager on NVIDIA H100 80GB HBM3, in a search, not measured again."
    )
    assert "50% of the operators (softmax), dtype and shape class" in mixed.reason
    assert (large.problem, large.confirmed, large.device_name) == (name, False, H100.device_name)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(PROBLEMS), st.floats(1.2, 50.0), st.sampled_from([H200, H100])),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(PROBLEMS),
)
def test_its_own_winner_is_first_and_the_order_is_the_same_every_time(
    tmp_path_factory: pytest.TempPathFactory, wins: list[tuple[Problem, float, Environment]], of: Problem
) -> None:
    filled = Filled(tmp_path_factory.mktemp("some") / "archive.db")
    for each, speedup, where in wins:
        filled.win(each, speedup, where)
    hits = filled.hits(of)
    assert hits == filled.hits(of)
    assert [h.problem_hash == of.hash for h in hits].count(True) == any(each == of for each, *_ in wins)
    if any(each == of for each, *_ in wins):
        assert hits[0].problem_hash == of.hash
    assert all(f"{h.speedup.median:.2f}x" in h.reason for h in hits)
    filled.archive.close()


def test_the_same_shapes_do_not_make_an_unrelated_problem_a_hit(filled: Filled) -> None:
    filled.win(RELU, 40.0)
    same_operators = filled.win(SOFTMAX_LARGE, 1.2)
    assert filled.order(SOFTMAX) == [same_operators.hash]


def test_an_unrelated_problem_that_speaks_of_it_comes_after_one_with_the_same_operators(filled: Filled) -> None:
    speaking = filled.win(RELU, 40.0, text="online softmax, then relu")
    same_operators = filled.win(SOFTMAX_LARGE, 1.2)
    assert filled.order(SOFTMAX) == [same_operators.hash, speaking.hash]
    assert "no operator in common, but its text speaks of softmax;" in filled.hits(SOFTMAX)[1].reason


def test_words_find_a_technique_and_stems_are_enough(filled: Filled) -> None:
    tiled = filled.win(RELU, text="tiled over columns")
    filled.win(GELU_SOFTMAX)
    unrelated = problem("torch.cumsum(x, -1)")
    assert filled.order(unrelated) == []
    assert filled.order(unrelated, words="tiling") == [tiled.hash]
    assert filled.order(unrelated, words='"; DROP TABLE candidates; -- AND NOT (') == []


def test_what_is_no_win_is_not_retrieved(filled: Filled) -> None:
    filled.win(SOFTMAX, 1.05)  # its interval reaches down to 0.95
    filled.win(SOFTMAX, 9.0, screened=True, stage="search")
    filled.win(SOFTMAX, 9.0, CPU)
    wrong = filled.win(SOFTMAX, 9.0, stage="search")
    broken = JobResult("key", wrong.hash, Verdict(Status.INCORRECT, "off by one"), H200)
    filled.archive.add_result(f"run {filled.count}", broken, CONFIRM)
    assert filled.hits(SOFTMAX) == []


def test_of_one_problem_the_best_of_each_back_end_is_retrieved(filled: Filled) -> None:
    filled.win(SOFTMAX, 2.0)
    best = filled.win(SOFTMAX, 3.0)
    filled.win(SOFTMAX, 8.0, stage="search")  # a figure of the search, not confirmed
    filled.win(SOFTMAX, 9.0, H100)  # measured elsewhere
    cuda = filled.win(SOFTMAX, 2.5, backend=Backend.CUDA)
    assert filled.order(SOFTMAX) == [best.hash, cuda.hash]
    only = retrieve(filled.archive, SOFTMAX, info(SOFTMAX), H200, backend=Backend.CUDA)
    assert [hit.candidate for hit in only] == [cuda]


def test_what_was_there_before_the_index_is_found_too(filled: Filled, tmp_path: Path) -> None:
    speaking = filled.win(RELU, text="online softmax")
    make(tmp_path / "old.db", "0002")
    with sqlite3.connect(tmp_path / "old.db") as plain:
        plain.execute("ATTACH ? AS now", [str(tmp_path / "archive.db")])
        for table in ("problems", "candidates", "runs", "proposals", "verdicts", "measurements"):
            plain.execute(f"INSERT INTO main.{table} SELECT * FROM now.{table}")
    with Archive.open(tmp_path / "old.db") as archive:
        assert [hit.candidate for hit in retrieve(archive, SOFTMAX, info(SOFTMAX), H200)] == [speaking]


def test_the_stored_description_of_a_problem_serves_as_well(filled: Filled) -> None:
    filled.win(SOFTMAX_LARGE)
    filled.win(SOFTMAX)
    stored = filled.archive.described(SOFTMAX.hash)
    assert retrieve(filled.archive, SOFTMAX, stored, H200) == filled.hits(SOFTMAX)
