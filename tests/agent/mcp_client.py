"""A coding agent's side of `kernelwright mcp`: a real client that starts the server and speaks to it over pipes."""

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client

HACKS = Path(__file__).parents[2] / "kernelbench" / "suites" / "hacks"
RIGHT = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return e / e.sum(dim=-1, keepdim=True)
"""
WRONG = RIGHT.replace("return e", "return 1.001 * e")
SOFTMAX = {"problem": "core/softmax", "shape": "tiny"}

Story = Callable[[ClientSession], Awaitable[None]]


def workplace(folder: Path) -> Path:
    """Where the server runs; its temporary folder is beside it."""
    for name in ("home", "temporary"):
        (folder / name).mkdir()
    return folder / "home"


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
