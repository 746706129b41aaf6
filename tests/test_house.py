"""What the house promises about its own files."""

import re
import subprocess
from pathlib import Path

import pytest

from kernelwright.agent.cli.exit_codes import ExitCode

ROOT = Path(__file__).parents[1]
LONGEST = 450
"""Lines. A file that is longer holds more than one idea."""
OF_ONE_MACHINE = re.compile(r"(?<![\w.])/(work|root|tmp|home/\w+)/\w")


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"not a git checkout: {done.stderr.strip()}")
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [p for p in paths if p.is_file() and not p.is_symlink()]


def test_the_readme_names_every_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [(int(code), name.strip()) for code, name in rows] == [
        (code.value, code.name.lower().replace("_", " ")) for code in ExitCode
    ]


def test_the_makefile_has_the_targets_that_the_documents_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    named = {name for path in documents for name in re.findall(r"`make ([a-z-]+)`", path.read_text())}
    assert named
    assert named <= targets


def test_the_documents_name_files_that_exist() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    named = {
        (path.name, file)
        for path in documents
        for file in re.findall(
            r"`((?:agent|stages|kernelbench|tests|examples|docs|scripts|benchmarks)/[\w./-]+)`", path.read_text()
        )
    }
    assert named
    assert [(where, file) for where, file in sorted(named) if not (ROOT / file).exists()] == []


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1)
        if OF_ONE_MACHINE.search(line)
    ]
    assert found == []


def test_no_product_file_is_too_long() -> None:
    product = [p for p in tracked() if p.suffix == ".py" and "tests" not in p.relative_to(ROOT).parts]
    assert product
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in product}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_every_constraint_is_a_version_of_an_index() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+(==[\w.]+|>=[\d.]+,<=[\d.]+)", line)] == []
