"""`kernelwright mcp` as a coding agent meets it: a real client that starts the server and speaks to it over pipes."""

import contextlib
import functools
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client

from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.mcp import LONGEST_SOURCE

HACKS = Path(__file__).parents[2] / "kernelbench" / "suites" / "hacks"
GONE_WITHIN_S = 30.0
"""A guard against waiting for ever: a process is gone some moments after its owner."""
RIGHT = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return e / e.sum(dim=-1, keepdim=True)
"""
WRONG = RIGHT.replace("return e", "return 1.001 * e")
ENDLESS = "import time\n\n" + RIGHT.replace("        e = ", "        time.sleep(600)\n        e = ")
SOFTMAX = {"problem": "core/softmax", "shape": "tiny"}
LOUD = """import torch

print("imported")


class Model(torch.nn.Module):
    def forward(self, x):
        print("called")
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
"""

Story = Callable[[ClientSession], Awaitable[None]]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the server runs, and beside it the machine's temporary folder, which must be empty again."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    yield home
    assert list(temporary.iterdir()) == [], "something was left behind"


@contextlib.asynccontextmanager
async def client(folder: Path) -> AsyncIterator[ClientSession]:
    """A session with a server of its own, which must end when the session does."""
    environment = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(folder.parent / "temporary")}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "kernelwright", "mcp"], env=os.environ | environment, cwd=folder
    )
    async with stdio_client(server) as pipes, ClientSession(*pipes) as session:
        await session.initialize()
        yield session


def tell(folder: Path, story: Story) -> None:
    async def run() -> None:
        async with client(folder) as session:
            await story(session)

    anyio.run(run)


async def answer(session: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers; the client has held it to the tool's schema."""
    result = await session.call_tool(tool, arguments)
    text: Any = result.content[0]
    assert not result.is_error, text.text
    assert json.loads(text.text) == result.structured_content
    found: dict[str, Any] = result.structured_content
    return found


async def refusal(session: ClientSession, tool: str, **arguments: Any) -> str:
    """The line that a tool error says."""
    result = await session.call_tool(tool, arguments)
    assert result.is_error
    (content,) = result.content
    text: Any = content
    assert "\n" not in text.text
    return str(text.text)


def server() -> psutil.Process:
    """The one server that this process has started."""
    (found,) = [p for p in psutil.Process().children() if "mcp" in p.cmdline()]
    return found


async def busy_tree() -> list[psutil.Process]:
    """The server, its worker, the zygote and a candidate's process, once there is one that calls the candidate."""
    while True:
        tree = [server(), *server().children(recursive=True)]
        if len(tree) > 3:
            return tree
        await anyio.sleep(0.05)


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=GONE_WITHIN_S)
    assert [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def test_each_tool_says_what_it_takes_gives_and_changes(folder: Path) -> None:
    async def story(session: ClientSession) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        expected = {"verify", "bench", "search_archive", "submit_candidate", "run_status"}
        assert set(tools) - {"profile"} == expected
        for tool in tools.values():
            assert tool.description
            assert tool.output_schema
            assert tool.annotations
            assert tool.annotations.read_only_hint is (tool.name != "submit_candidate")
            assert tool.annotations.open_world_hint is False
        assert tools["submit_candidate"].annotations.destructive_hint is False
        assert tools["submit_candidate"].annotations.idempotent_hint is True
        scores = {"verdict", "times", "speedup", "median_ms"}
        assert not scores & {name for tool in tools.values() for name in tool.input_schema["properties"]}
        assert "gain" in (session.instructions or "")

    tell(folder, story)


def test_right_wrong_and_cheating_candidates_are_answers(folder: Path) -> None:
    (folder / "loud.py").write_text(LOUD)
    stages: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        stages.append(message or "")

    async def story(session: ClientSession) -> None:
        given = {"source": RIGHT, "problem": "loud.py", "timed": False, "seed": 7}
        result = await session.call_tool("verify", given, progress_callback=heard)
        right: Any = result.structured_content
        assert (right["verdict"], right["message"], right["failed"]) == ("correct", "", [])
        assert right["checks"] > 20
        assert right["closest"][0]["figure"] <= right["closest"][0]["bound"]
        assert (right["backend"], right["seed"], right["times"]) == ("torch", 7, None)
        assert stages, "loading torch takes longer than the first report"

        wrong = await answer(session, "verify", **given | {"source": WRONG})
        assert wrong["verdict"] == "incorrect"
        assert wrong["failed"][0]["figure"] > wrong["failed"][0]["bound"]
        assert wrong["failed"][0]["name"] in wrong["message"]

        broken = await answer(session, "verify", **given | {"source": "import nothing_of_the_kind\n"})
        assert broken["verdict"] == "compile_error"
        assert "nothing_of_the_kind" in broken["message"]
        assert "source" in broken["message"]

        hack = HACKS / "env_write_outside"
        cheat = (hack / "candidate.py").read_text()
        found = await answer(session, "verify", source=cheat, problem=str(hack / "reference.py"), timed=False)
        assert found["verdict"] == "tampered"
        assert list(folder.iterdir()) == [folder / "loud.py"], "verifying stores nothing"

    tell(folder, story)


def test_what_cannot_be_used_is_one_line(folder: Path) -> None:
    (folder / "loud.py").write_text(LOUD.replace("torch.softmax(x, dim=-1)", "torch.softmax(x, dim=7)"))

    async def story(session: ClientSession) -> None:
        given: dict[str, Any] = {"source": RIGHT, **SOFTMAX}
        refused = functools.partial(refusal, session)
        assert "no such problem; core has" in await refused("verify", **given | {"problem": "core/nothing"})
        assert await refused("verify", source=RIGHT) == "verify: problem: Field required"
        assert "missing.py: no such file" in await refused("verify", source=RIGHT, problem="missing.py")
        assert "loud.py:9:" in await refused("verify", source=RIGHT, problem="loud.py")
        too_long = await refused("verify", **given | {"source": "#" * (LONGEST_SOURCE + 1)})
        assert too_long == f"verify: source: String should have at most {LONGEST_SOURCE} characters"
        assert "source: String should have at least 1" in await refused("verify", **given | {"source": ""})
        assert "baselines.0" in await refused("verify", **given, baselines=["best"])
        assert "candidates" in await refused("bench", candidates=[], problem="core/softmax")
        assert "no such archive yet" in await refused("run_status", run="elsewhere")
        assert "give either" in await refused("submit_candidate", source=RIGHT)
        assert "give either" in await refused("submit_candidate", run="elsewhere", **given)
        assert "no such archive yet" in await refused("submit_candidate", source=RIGHT, run="elsewhere")
        assert "unknown tool" in (await refused("nothing")).lower()
        assert await answer(session, "search_archive") == {"candidates": [], "more": False}
        assert not (folder / "archive.db").exists()

    tell(folder, story)


def test_a_candidate_that_is_submitted_twice_is_stored_once_and_found(folder: Path) -> None:
    async def story(session: ClientSession) -> None:
        first = await answer(session, "submit_candidate", source=WRONG, note="off on purpose", **SOFTMAX)
        run = first["run"]
        again = await answer(session, "submit_candidate", source=WRONG, run=run)
        assert (first["verdict"], first["new"], again["new"]) == ("incorrect", True, False)
        assert (first["slot"], again["slot"], first["generation"]) == (0, 0, -1)
        assert first | {"new": False} == again
        assert not first["winner"]
        other = await answer(session, "submit_candidate", source=WRONG + "\n", run=run, note="and so is this")
        assert other["slot"] == 1

        status = await answer(session, "run_status", run=run)
        assert (status["proposed"], status["judged"], status["correct"]) == (2, 2, 0)
        assert (status["winner"], status["status"], status["problem"]) == (None, "running", "core/softmax:tiny")
        assert [row["directive"] for row in status["latest"]] == ["and so is this", "off on purpose"]
        assert (Path(status["folder"]) / "report.html").exists()

        assert (await answer(session, "search_archive", text="purpose"))["candidates"] == []
        found = await answer(session, "search_archive", text="PURPOSE", correct_only=False, with_source=True)
        assert [row["source"] for row in found["candidates"]] == [WRONG]
        assert (found["candidates"][0]["hash"], found["more"]) == (first["hash"], False)
        of_problem = await answer(session, "search_archive", problem="core/softmax", correct_only=False, limit=1)
        assert of_problem["more"]
        assert of_problem["candidates"][0]["source"] is None
        assert "no run elsewhere" in await refusal(session, "run_status", run="elsewhere")

    tell(folder, story)


def test_two_clients_that_submit_at_once_are_both_answered_from_one_row(folder: Path) -> None:
    async def run() -> None:
        found: list[dict[str, Any]] = []

        async def submit(session: ClientSession, source: str, run: str) -> None:
            found.append(await answer(session, "submit_candidate", source=source, run=run))

        async with client(folder) as one, client(folder) as two:
            begun = await answer(one, "submit_candidate", source=WRONG, **SOFTMAX)
            async with anyio.create_task_group() as group:
                for session in (one, two):
                    for source in (WRONG, WRONG + "# same\n", WRONG + "# same\n"):
                        group.start_soon(submit, session, source, begun["run"])
        assert len(found) == 6
        assert {row["verdict"] for row in found} == {"incorrect"}
        assert len({(row["hash"], row["slot"]) for row in found}) == 2

    anyio.run(run)
    with contextlib.closing(sqlite3.connect(folder / "archive.db")) as database:
        for table in ("proposals", "verdicts"):
            rows = database.execute(f"SELECT candidate_hash, count(*) FROM {table} GROUP BY 1").fetchall()
            assert [count for _, count in rows] == [1, 1]


def test_a_cancelled_call_makes_room_for_the_next(folder: Path) -> None:
    async def story(session: ClientSession) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(functools.partial(session.call_tool, "verify", {"source": ENDLESS, **SOFTMAX}))
            judging = [p for p in await busy_tree() if p != server()]
            group.cancel_scope.cancel()
        found = await answer(session, "verify", source=WRONG, **SOFTMAX)
        assert found["verdict"] == "incorrect"
        assert_gone(judging)

    tell(folder, story)


def test_a_client_that_leaves_in_the_middle_leaves_nothing_running(folder: Path) -> None:
    seen: list[psutil.Process] = []

    async def story(session: ClientSession) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_until_closed, session)
            seen.extend(await busy_tree())
            group.cancel_scope.cancel()

    tell(folder, story)
    assert_gone(seen)


async def _until_closed(session: ClientSession) -> None:
    with contextlib.suppress(MCPError):
        await session.call_tool("verify", {"source": ENDLESS, **SOFTMAX})


@pytest.mark.parametrize("signal", ["terminate", "kill"])
def test_a_server_that_is_ended_takes_everything_with_it(tmp_path: Path, signal: str) -> None:
    seen: list[psutil.Process] = []

    async def story(session: ClientSession) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_until_closed, session)
            seen.extend(await busy_tree())
            getattr(seen[0], signal)()

    (tmp_path / "home").mkdir()
    (tmp_path / "temporary").mkdir()
    tell(tmp_path / "home", story)
    assert_gone(seen)
    if signal == "terminate":
        assert list((tmp_path / "temporary").iterdir()) == []


def test_without_the_library_the_verb_says_what_to_install(tmp_path: Path) -> None:
    import subprocess

    hidden = "import sys; sys.modules['mcp'] = None; sys.argv = ['kernelwright', 'mcp'];"
    code = f"{hidden} from kernelwright.agent.cli.main import main; main()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.ENVIRONMENT
    assert done.stderr == "kernelwright: the package mcp is not installed: pip install 'kernelwright[mcp]'\n"


@pytest.mark.slow
def test_a_kernel_is_compared_submitted_and_measured(folder: Path) -> None:
    case = HACKS / "ok_cpp_kernel"
    kernel, problem = (case / "candidate.py").read_text(), str(case / "reference.py")
    plain = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        %s\n"
    same = plain % "return torch.relu(x * 2.0 + 1.0) - x"

    async def story(session: ClientSession) -> None:
        named = [{"name": "kernel", "source": kernel}, {"name": "same", "source": same}]
        wrong = {"name": "wrong", "source": plain % "return x"}
        found = await answer(session, "bench", candidates=[*named, wrong], problem=problem, baselines=["eager"])
        by_name = {row["name"]: row for row in found["candidates"]}
        assert by_name["wrong"]["verdict"] == "incorrect"
        assert by_name["wrong"]["rank"] is None
        assert {by_name["kernel"]["rank"], by_name["same"]["rank"]} <= {1, 2}
        assert set(by_name["kernel"]["times"]["baselines_ms"]) == {"eager"}

        stored = await answer(session, "submit_candidate", source=kernel, problem=problem, note="one pass")
        assert (stored["verdict"], stored["new"]) == ("correct", True)
        assert set(stored["times"]["baselines_ms"]) == {"eager", "compile"}
        status = await answer(session, "run_status", run=stored["run"])
        assert status["fastest"]["hash"] == stored["hash"]
        assert (status["winner"] is not None) is stored["winner"]
        assert (Path(status["folder"]) / "best_model.py").exists() is stored["winner"]
        (row,) = (await answer(session, "search_archive", text="pass"))["candidates"]
        assert row["confirmed"] is stored["confirmed"]

    tell(folder, story)
