"""What the tools of `kernelwright mcp` answer, and what they refuse."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp import ClientSession

from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.mcp import LONGEST_SOURCE
from tests.agent.mcp_client import HACKS, RIGHT, SOFTMAX, WRONG, answer, refusal, tell, workplace

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


def test_each_tool_says_what_it_takes_gives_and_changes(tmp_path: Path) -> None:
    folder = workplace(tmp_path)

    async def story(session: ClientSession) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        expected = {"verify", "bench", "profile", "search_archive", "submit_candidate", "run_status"}
        assert set(tools) == expected
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


def test_right_wrong_and_cheating_candidates_are_answers(tmp_path: Path) -> None:
    folder = workplace(tmp_path)
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

        writes, _, _ = (HACKS / "env_write_outside" / "candidate.py").read_text().partition("class ModelNew")
        cheat = await answer(session, "verify", **given | {"source": writes + RIGHT})
        assert cheat["verdict"] == "tampered"
        assert list(folder.iterdir()) == [folder / "loud.py"], "verifying stores nothing"

    tell(folder, story)


def test_what_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    folder = workplace(tmp_path)
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


def test_without_the_library_the_verb_says_what_to_install(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['mcp'] = None; sys.argv = ['kernelwright', 'mcp'];"
    code = f"{hidden} from kernelwright.agent.cli.main import main; main()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.ENVIRONMENT
    assert done.stderr == "kernelwright: the package mcp is not installed: pip install 'kernelwright[mcp]'\n"
