import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kernelwright.stages.execute import scratch


def test_a_folder_is_gone_afterwards() -> None:
    with scratch.folder("trial") as made:
        (made / "file").write_text("x")
        assert made.name.startswith("kernelwright-trial-")
    assert not made.exists()


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import sys, tempfile, time; tempfile.tempdir = sys.argv[1]\n"
        "from kernelwright.stages.execute import scratch\n"
        "with scratch.folder('killed') as made:\n"
        "    (made / 'deep').mkdir(); print(made, flush=True); time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    left = Path(child.stdout.readline().strip())
    (tmp_path / "kernelwright-of-somebody-else").mkdir()
    with scratch.folder("living") as living:
        assert left.exists(), "its process lives"
        child.send_signal(signal.SIGKILL)
        child.wait()
        with scratch.folder("next"):
            assert not left.exists()
            assert living.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["kernelwright-of-somebody-else"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    candidate = tmp_path / "slow.py"
    candidate.write_text("import time\ntime.sleep(50)\n")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-m", "kernelwright", "verify", str(candidate), "--ref", "core/softmax", "--shape", "tiny"],
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary), "PYTHONPATH": ":".join(p for p in sys.path if p)},
    )
    assert child.stderr is not None
    while "verifying" not in (line := child.stderr.readline()):
        assert line, "it ended before it was stopped"
    time.sleep(0.5)
    child.send_signal(number)
    said = child.stderr.read()
    assert child.wait() == 130
    assert said.endswith("kernelwright: interrupted\n")
    assert list(temporary.iterdir()) == []
