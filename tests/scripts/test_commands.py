"""The table of commands in the tree is that of the command line in the tree."""

import subprocess
import sys
from pathlib import Path

from kernelwright.agent.cli.main import VERBS

ROOT = Path(__file__).parents[2]


def test_the_document_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "commands.md"
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "commands.py"), str(made)],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert all(f"## kernelwright {verb}" in made.read_text() for verb in VERBS)
    assert "| `--no-library` |" in made.read_text()
    assert (ROOT / "docs" / "commands.md").read_text() == made.read_text(), "run `make docs`"
