"""Stored times of references by themselves."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Precision, Problem
from kernelwright.stages.archive import Archive
from kernelwright.stages.archive.baselines import Baseline, find, store
from kernelwright.stages.types import Environment, Ratio, Timing
from tests.stages.archive.old_schema import make

PROBLEM = Problem("doubling", "class Model: ...", "doubling.py", "tiny")
GPU = Environment("cuda", "a GPU", "580.1", "2.11.0", "3.6.0", "3.12.3", 16)
EAGER = Baseline("eager", Timing((1.0, 1.1), 1.05, 20), None)
TUNED = Baseline("max-autotune", Timing((0.5, 0.5), 0.5, 40), Ratio(2.1, 1.9, float("inf")))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "archive.db")


def test_what_was_stored_is_found_for_the_same_device_and_versions_only(archive: Archive) -> None:
    store(archive, PROBLEM, GPU, Precision.STRICT, [EAGER, TUNED])
    assert find(archive, PROBLEM.hash, GPU, Precision.STRICT) == {"eager": EAGER, "max-autotune": TUNED}
    for other in (
        replace(GPU, device_name="another GPU"),
        replace(GPU, driver="590.1"),
        replace(GPU, torch="2.12.0"),
        replace(GPU, triton="3.7.0"),
    ):
        assert find(archive, PROBLEM.hash, other, Precision.STRICT) == {}
    assert find(archive, PROBLEM.hash, GPU, Precision.TF32) == {}
    assert find(archive, "another problem", GPU, Precision.STRICT) == {}
    assert find(archive, PROBLEM.hash, replace(GPU, python="3.13.0"), Precision.STRICT)


def test_a_later_time_takes_the_place_of_an_earlier_one(archive: Archive) -> None:
    store(archive, PROBLEM, GPU, Precision.STRICT, [EAGER, TUNED])
    faster = replace(EAGER, timing=Timing((0.9,), 0.9, 20))
    store(archive, PROBLEM, GPU, Precision.STRICT, [faster])
    assert find(archive, PROBLEM.hash, GPU, Precision.STRICT) == {"eager": faster, "max-autotune": TUNED}


def test_an_archive_of_the_first_schema_is_brought_here_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    make(path, "0001")
    with Archive.open(path) as archive:
        store(archive, PROBLEM, GPU, Precision.STRICT, [EAGER])
        assert find(archive, PROBLEM.hash, GPU, Precision.STRICT) == {"eager": EAGER}
