"""How calls and servers of `kernelwright mcp` end before their time: nothing goes on working for nobody."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest
from mcp import ClientSession, MCPError

from tests.agent.mcp_client import RIGHT, SOFTMAX, WRONG, answer, tell, workplace

GONE_WITHIN_S = 30.0
"""A guard against waiting for ever: a process is gone some moments after its owner."""
ENDLESS = "import time\n\n" + RIGHT.replace("        e = ", "        time.sleep(600)\n        e = ")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the server runs, and beside it the machine's temporary folder, which must be empty again."""
    yield workplace(tmp_path)
    assert list((tmp_path / "temporary").iterdir()) == [], "something was left behind"


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


@pytest.mark.slow
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


@pytest.mark.parametrize("signal", ["kill", pytest.param("terminate", marks=pytest.mark.slow)])
def test_a_server_that_is_ended_takes_everything_with_it(tmp_path: Path, signal: str) -> None:
    seen: list[psutil.Process] = []

    async def story(session: ClientSession) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_until_closed, session)
            seen.extend(await busy_tree())
            getattr(seen[0], signal)()

    tell(workplace(tmp_path), story)
    assert_gone(seen)
    if signal == "terminate":
        assert list((tmp_path / "temporary").iterdir()) == []
