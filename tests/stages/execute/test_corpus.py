"""The referee on the whole corpus: every hack is refused, every honest candidate accepted."""

import os
from pathlib import Path

import pytest

from kernelwright.kernelbench.hacks import HackCase, cases
from kernelwright.stages.execute.local import LocalExecutor
from kernelwright.stages.execute.selftest import SelftestRow, choose, run

REPEATS = int(os.environ.get("KERNELWRIGHT_CORPUS_REPEATS", "20"))
CPU = [case.id for case in cases() if case.runs_on("cpu")]
CUDA = [case.id for case in cases() if case.runs_on("cuda")]
HONEST = [case.id for case in cases() if case.runs_on("cpu") and case.expected == "accept"]


def judge(folder: Path, device: str, chosen: list[HackCase], repeats: int = 1) -> dict[str, list[SelftestRow]]:
    found: dict[str, list[SelftestRow]] = {}
    for row in run(chosen, device, lambda: LocalExecutor(folder / "cache", folder / "worker.log"), repeats):
        found.setdefault(row.id, []).append(row)
    return found


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[SelftestRow]]:
    return judge(tmp_path_factory.mktemp("corpus"), "cpu", choose("cpu"))


@pytest.fixture(scope="module")
def on_cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[SelftestRow]]:
    return judge(tmp_path_factory.mktemp("corpus"), "cuda", choose("cuda"))


@pytest.mark.parametrize("name", CPU)
def test_on_the_cpu(on_cpu: dict[str, list[SelftestRow]], name: str) -> None:
    (row,) = on_cpu[name]
    assert row.as_expected, f"must {row.expected}, got {row.status.value}: {row.message}"


@pytest.mark.gpu
@pytest.mark.parametrize("name", CUDA)
def test_on_cuda(on_cuda: dict[str, list[SelftestRow]], name: str) -> None:
    (row,) = on_cuda[name]
    assert row.as_expected, f"must {row.expected}, got {row.status.value}: {row.message}"


@pytest.mark.slow
def test_no_honest_candidate_is_refused_in_twenty_repeats(tmp_path: Path) -> None:
    found = judge(tmp_path, "cpu", choose("cpu", HONEST), REPEATS)
    wrong = [
        f"{r.id} #{r.repeat}: {r.status.value}: {r.message}"
        for rows in found.values()
        for r in rows
        if not r.as_expected
    ]
    assert wrong == []
