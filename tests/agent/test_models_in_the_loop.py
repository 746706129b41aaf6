"""Whole runs with a model's endpoint: a real server on loopback, a real worker, a real archive."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelwright.stages.archive import Archive, calls
from kernelwright.stages.types import Status
from tests.agent.clamp_chain import KERNEL, MENDING, MISPLACED, PROBLEM, WRONG, fenced
from tests.agent.llm.server import Completion, Request, ScriptedServer, broken, rate_limited, unsupported

KEY = "sk-canary-0123456789abcdef0123456789"


def kernelwright(
    folder: Path, *words: str, base_url: str = "http://127.0.0.1:9/v1"
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "KERNELWRIGHT_"))}
    environment |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": base_url}
    return subprocess.run(
        [sys.executable, "-m", "kernelwright", *words],
        cwd=folder,
        env=environment | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=400,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "chain.py").write_text(PROBLEM)
    return tmp_path


def run_of(folder: Path) -> str:
    (run,) = [p.name for p in (folder / "runs").iterdir()]
    return run


OPTIMIZE = ("optimize", "chain.py", "--proposer", "llm", "--model", "a-model", "--json")


def test_a_run_goes_from_a_busy_server_and_a_wrong_kernel_to_a_verified_faster_one(folder: Path) -> None:
    """429 with Retry-After, an unsupported parameter, a wrong kernel, edits that fit nowhere, then the right ones."""

    def answer(request: Request) -> Completion:
        if "could not be used" in request.prompt:
            return Completion(MENDING)
        return Completion(MISPLACED if "of the file below" in request.prompt else fenced(WRONG))

    script = [rate_limited(0), unsupported("stream_options")]
    with ScriptedServer(script, after=answer) as server:
        done = kernelwright(folder, *OPTIMIZE, "--max-candidates", "2", "--target", "1.1", base_url=server.base_url)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["speedup"]["low"] > 1.02
    assert "v * 1.25f - 0.125f" in (folder / "runs" / run_of(folder) / "best_model.py").read_text()

    with Archive.open(folder / "archive.db") as archive:
        run = run_of(folder)
        statuses = [r.result.verdict.status for r in archive.results_of(run, "search")]
        assert sorted(statuses) == sorted([Status.INCORRECT, Status.CORRECT])
        stored = calls.calls_of_run(archive, run)
    assert {c.outcome for c in stored} == {"ok"}
    assert all(c.model == "a-model" and c.usage.tokens_in > 0 for c in stored)
    assert any("stream_options" in r.body for r in server.requests)
    assert "stream_options" not in server.requests[-1].body
    asked_again = [r.prompt for r in server.requests if "could not be used" in r.prompt]
    assert any("total += weights[i]" in prompt for prompt in asked_again)
    repairs = [r.prompt for r in server.requests if "The referee says of the file below: incorrect" in r.prompt]
    assert repairs
    assert "largest error" in repairs[0]
    everything = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file()) + done.stdout.encode()
    assert KEY.encode() not in everything + done.stderr.encode()


@pytest.mark.slow
def test_a_budget_ends_the_search_with_exit_4_and_is_never_exceeded(folder: Path) -> None:
    numbers = itertools.count(300)

    def another(request: Request) -> Completion:
        return Completion(fenced(WRONG.replace("0.25f", f"0.{next(numbers)}f")))

    with ScriptedServer(after=another) as server:
        done = kernelwright(folder, *OPTIMIZE, "--budget-tokens", "30000", base_url=server.base_url)
    assert done.returncode == 4, done.stderr
    with Archive.open(folder / "archive.db") as archive:
        assert 0 < calls.spending_of(archive, run_of(folder)).tokens <= 30_000
    assert len(server.requests) < 20


@pytest.mark.slow
def test_a_dead_endpoint_ends_with_exit_5_and_the_run_goes_on_when_it_is_back(folder: Path) -> None:
    with ScriptedServer(after=broken(503)) as server:
        done = kernelwright(folder, *OPTIMIZE, "--max-candidates", "6", base_url=server.base_url)
        assert done.returncode == 5, done.stderr
        assert f"kernelwright resume {run_of(folder)}" in done.stderr
        server.script(after=Completion(fenced(KERNEL)))
        again = kernelwright(folder, "resume", run_of(folder), "--json", base_url=server.base_url)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["speedup"]["low"] > 1.02


def test_without_a_model_or_a_price_nothing_is_begun(folder: Path) -> None:
    for words, said in (
        (("--proposer", "llm"), "no model: name one by --model"),
        (("--proposer", "llm", "--model", "unheard-of", "--budget-usd", "1"), "unheard-of"),
        (("--proposer", "nobody"), "--proposer nobody: unknown"),
        (("--model", "a-model"), "are for --proposer llm"),
    ):
        done = kernelwright(folder, "optimize", "chain.py", *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_a_run_that_is_handed_off_waits_and_goes_on_with_the_replies(folder: Path) -> None:
    words = ("optimize", "chain.py", "--proposer", "handoff", "--max-candidates", "2", "--target", "1.1", "--json")
    done = kernelwright(folder, *words)
    assert done.returncode == 75, done.stderr
    run = run_of(folder)
    handoff = folder / "runs" / run / "handoff"
    assert sorted(p.name for p in handoff.glob("*.md")) == ["0001.prompt.md", "0002.prompt.md"]
    prompt = (handoff / "0001.prompt.md").read_text()
    assert "class Model(nn.Module)" in prompt
    assert "CPP_SOURCE" in prompt

    (handoff / "0001.reply.md").write_text(fenced(KERNEL))
    again = kernelwright(folder, "resume", run, "--json")
    assert again.returncode == 75, again.stderr
    assert "0002.prompt.md" in again.stderr
    assert "0001.prompt.md" not in again.stderr

    (handoff / "0002.reply.md").write_text(fenced(WRONG))
    last = kernelwright(folder, "resume", run, "--json")
    assert last.returncode == 0, last.stderr
    assert json.loads(last.stdout)["speedup"]["low"] > 1.02
