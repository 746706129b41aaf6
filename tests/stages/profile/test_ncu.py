"""What Nsight Compute prints becomes counters, or one line that says why there are none."""

import os
import re
import stat
from pathlib import Path

import pytest

from kernelwright.stages.profile import ncu
from kernelwright.stages.profile.plain import LONGEST

FIXED = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size")
SHOWN = (ncu.TIME, ncu.DRAM, ncu.SM, ncu.OCCUPANCY)
BEFORE = "==PROF== Connected to process 77 (python3)\n==PROF== Disconnected from process 77\n"


def row(*cells: str) -> str:
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


def launch(number: int, kernel: str, *figures: str) -> str:
    return row(str(number), "77", "python3", "127.0.0.1", kernel, "1", "7", "(256, 1, 1)", "(4096, 1, 1)", *figures)


HEAD = row(*FIXED, *SHOWN) + row("", "", "", "", "", "", "", "block", "block", "ns", "%", "%", "%")
PAGE = (
    BEFORE
    + HEAD
    + launch(0, "void copy<float>(float*, int)", "1,000", "90.5", "12.0", "88")
    + launch(1, "scale", "4,000", "nan", "60", "n/a")
    + launch(2, "scale", "6,000", "50", "70", "n/a")
)


def test_each_kernel_has_the_mean_of_its_launches_and_the_longest_comes_first() -> None:
    scale, copy = ncu.parse(PAGE)
    assert (scale.kernel, scale.launches) == ("scale", 2)
    assert scale.values[ncu.TIME] == 5000.0
    assert scale.values[ncu.SM] == 65.0
    assert copy.kernel == "void copy<float>(float*, int)"
    assert copy.values[ncu.DRAM] == 90.5


def test_what_is_no_number_is_no_figure() -> None:
    scale, _ = ncu.parse(PAGE)
    assert scale.values[ncu.DRAM] == 50.0, "nan is left out of the mean"
    assert scale.values[ncu.OCCUPANCY] is None


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters "
            "on the target device 0.\n",
            ncu.CLOSED,
        ),
        ("==ERROR== Failed to connect to process.\n==PROF== gone\n", "Failed to connect to process."),
        ("", "ncu gave no table"),
        (BEFORE + HEAD, "ncu saw no kernel"),
    ],
)
def test_without_a_table_there_is_a_reason(said: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        ncu.parse(said)
    assert len(ncu.CLOSED) < LONGEST


def program(folder: Path, text: str) -> None:
    """A program called ncu that writes `text` where it is told to log."""
    path = folder / "ncu"
    path.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != "--log-file" ]; do shift; done\n'
        f"cat > \"$2\" <<'END'\n{text}END\n"
        'while [ "$1" != "-m" ]; do shift; done\n'
        'test "$2" = kernelwright.stages.profile.ncu_target && grep -q \'"slot": 3\' "$3"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_counters_of_the_call_travel_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, PAGE)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    answer = ncu.record([{"do": "load"}], 3, tmp_path, 10.0)
    assert ncu.read(answer) == ncu.parse(PAGE)


def test_closed_counters_are_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "==ERROR== ERR_NVGPUCTRPERM - no permission\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    answer = ncu.record([], 3, tmp_path, 10.0)
    assert "ERR_NVGPUCTRPERM" in answer["missing"]
    assert "\n" not in answer["missing"]
    assert ncu.lasting(answer["missing"])
    assert not ncu.lasting("ncu saw no kernel (status 0)")


def test_a_machine_without_ncu_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ncu.record([], 0, tmp_path, 1.0) == {"missing": "ncu (Nsight Compute) is not on PATH"}


def test_an_endless_ncu_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ncu"
    path.write_text("#!/bin/sh\nexec sleep 600\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert ncu.record([], 0, tmp_path, 0.2) == {"missing": "ncu took longer than 0.2 s"}


@pytest.mark.parametrize("value", [-1.0, float("inf"), "9", True])
def test_an_answer_that_is_no_figure_is_refused(value: object) -> None:
    answer = {"counters": [{"kernel": "k", "launches": 1, "values": {ncu.DRAM: value}}]}
    with pytest.raises(ValueError, match="is no figure"):
        ncu.read(answer)


def test_stalls_come_in_words_the_longest_first() -> None:
    names = {word: name for name, word in ncu.STALLS.items()}
    values = {names["barriers"]: 0.5, names["global memory"]: 9.0, ncu.DRAM: 90.0}
    assert ncu.stalls(values) == [("global memory", 9.0), ("barriers", 0.5)]
