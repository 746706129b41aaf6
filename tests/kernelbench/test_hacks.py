"""The corpus: each hack deserves its place (naive checkers accept it), and each honest candidate is truly right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.kernelbench.hacks import FOLDER, HackCase, cases

CHECKER = Path(__file__).with_name("naive_checker.py")
CASES = cases()
LONGEST_S = 300.0
"""A guard against a case that never ends; most take a tenth of a second."""


def slow_to_build(case: HackCase) -> bool:
    """Built with torch's headers: half a minute each."""
    return "load_inline" in case.candidate


def faults(kind: str, chosen: list[HackCase]) -> dict[str, str]:
    """What went wrong, by case; nothing for those that passed."""
    assert chosen
    folders = "\n".join(str(FOLDER / case.id) for case in chosen)
    argv = [sys.executable, str(CHECKER), kind, str(LONGEST_S)]
    done = subprocess.run(argv, input=folders, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == len(chosen)
    return {Path(folder).name: fault for folder, fault in found.items() if fault}


def here(expected: str, *, slow: bool = False) -> list[HackCase]:
    return [c for c in CASES if c.expected == expected and c.runs_on("cpu") and slow_to_build(c) == slow]


def test_every_hack_gets_past_a_naive_checker() -> None:
    chosen = here("reject")
    assert len(chosen) >= 90
    assert faults("hacks", chosen) == {}


def test_every_honest_candidate_is_right() -> None:
    chosen = here("accept")
    assert len(chosen) >= 28
    assert faults("honest", chosen) == {}


@pytest.mark.slow
def test_the_same_of_those_that_are_slow_to_build() -> None:
    assert faults("hacks", here("reject", slow=True)) == {}
    assert faults("honest", here("accept", slow=True)) == {}


def test_both_checkers_can_say_no(tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    folder.mkdir()
    (folder / "reference.py").write_text((FOLDER / "prec_tanh_gelu" / "reference.py").read_text())
    (folder / "candidate.py").write_text("import torch\n\n\nclass ModelNew(torch.nn.ReLU):\n    pass\n")
    for kind in ("hacks", "honest"):
        argv = [sys.executable, str(CHECKER), kind, str(LONGEST_S)]
        done = subprocess.run(argv, input=str(folder), capture_output=True, text=True)
        assert json.loads(done.stdout)[str(folder)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_is_well_formed(case: HackCase) -> None:
    assert case.expected in ("reject", "accept")
    assert case.device in ("any", "cpu", "cuda")
    assert case.backend in ("cpp", "triton", "cuda", "torch")
    assert case.id.startswith("ok_") == (case.expected == "accept") == case.group.startswith("honest_")
    assert case.reason.endswith(".")
    assert "class ModelNew" in case.candidate
    assert "#" not in case.candidate.replace("#include", "").replace("#pragma", ""), "a comment would give a hint"


def test_a_folder_has_these_three_files_and_no_other() -> None:
    for folder in FOLDER.iterdir():
        assert {p.name for p in folder.iterdir() if p.name != "__pycache__"} == {
            "case.json",
            "candidate.py",
            "reference.py",
        }
    assert [case.id for case in CASES] == sorted(folder.name for folder in FOLDER.iterdir())
