"""Submitting to the server of `kernelwright mcp`: stored once, found again, whoever else submits."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession

from tests.agent.mcp_client import HACKS, SOFTMAX, WRONG, answer, client, refusal, tell, workplace


def test_a_candidate_that_is_submitted_twice_is_stored_once_and_found(tmp_path: Path) -> None:
    folder = workplace(tmp_path)

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


@pytest.mark.slow
def test_two_clients_that_submit_at_once_are_both_answered_from_one_row(tmp_path: Path) -> None:
    folder = workplace(tmp_path)

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


@pytest.mark.slow
def test_a_kernel_is_compared_submitted_and_measured(tmp_path: Path) -> None:
    folder = workplace(tmp_path)
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
