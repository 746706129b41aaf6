"""`kernelwright selftest` as a person and as a program read it."""

import json
import os
import subprocess
import sys
from pathlib import Path


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    argv = [sys.executable, "-m", "kernelwright", "selftest", *arguments]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_quick_one_says_both_rates(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok  torch" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1/4 ok")
    assert "hacks refused: 3/3" in lines
    assert "honest accepted: 1/1" in lines
    assert list(tmp_path.iterdir()) == []


def test_as_json_prose_goes_to_stderr(tmp_path: Path) -> None:
    done = run(tmp_path, "--case", "cache_data_ptr", "--repeats", "2", "--json")
    found = json.loads(done.stdout)
    assert found["schema"] == "kernelwright.selftest/1"
    assert [(r["id"], r["repeat"], r["as_expected"]) for r in found["rows"]] == [
        ("cache_data_ptr", 0, True),
        ("cache_data_ptr", 1, True),
    ]
    assert found["hacks"] == {"right": 2, "judged": 2, "not_judged": 0}
    assert done.returncode == found["exit_code"] == 0
    assert "cache_data_ptr" in done.stderr


def test_the_list_names_every_case(tmp_path: Path) -> None:
    done = run(tmp_path, "--list", "--json")
    assert done.returncode == 0
    assert {"env_open_socket", "ok_dict_output"} <= {case["id"] for case in json.loads(done.stdout)["cases"]}


def test_what_cannot_be_used_is_2(tmp_path: Path) -> None:
    for arguments in (["--case", "nope"], ["--results", "r.json"], ["--repeats", "0"]):
        done = run(tmp_path, *arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
