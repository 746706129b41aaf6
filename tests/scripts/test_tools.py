"""The tools in docs/mcp.md are those of the server in the tree."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_document_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "mcp.md"
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "tools.py"), str(made)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "### `submit_candidate`" in made.read_text()
    assert "| `source` | A Python file that defines ModelNew, as text. Required. |" in made.read_text()
    assert (ROOT / "docs" / "mcp.md").read_text() == made.read_text(), "run `make docs`"
