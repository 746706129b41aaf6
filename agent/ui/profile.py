"""A profile on the terminal and as JSON."""

from __future__ import annotations

from typing import Any

from kernelwright.agent.ui import table
from kernelwright.agent.ui.table import Column
from kernelwright.stages.codec import to_json
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.profile.ladder import profile_of
from kernelwright.stages.profile.report import Profile
from kernelwright.stages.types import Status

SCHEMA = "kernelwright.profile/1"
SHOWN = 8
"""Rows of each table; JSON has all."""
NAME = 60
"""Characters of a kernel's name."""


def as_json(result: JobResult, name: str, problem: str, command: str) -> dict[str, Any]:
    """The object that `kernelwright profile --json` prints, but for the exit code."""
    profile = profile_of(result)
    return {
        "schema": SCHEMA,
        "candidate": name,
        "problem": problem,
        "verdict": result.verdict.status.value,
        "message": result.verdict.message,
        **to_json(profile),
        "summary": profile.summary(),
        "environment": to_json(result.environment),
        "command": command,
    }


def print_profile(result: JobResult, command: str) -> None:
    """The kernels, their code, the finding with its metrics, what is missing, and the command that does it again."""
    profile = profile_of(result)
    if profile.kernels:
        _kernels(profile)
    if profile.code:
        _code(profile)
    if result.verdict.status is not Status.UNKNOWN:
        print(f"verdict    {result.verdict.status.value}: {result.verdict.message.strip()}")
    print(f"machine    {profile.device_name}")
    print(f"bottleneck {profile.finding.bottleneck.value} (from {profile.tier.value if profile.tier else 'nothing'})")
    for metric in profile.finding.metrics:
        print(f"           {metric}")
    if profile.finding.advice:
        print(f"advice     {profile.finding.advice}")
    for tier, why in profile.missing.items():
        print(f"missing    {tier}: {why}")
    print(f"again      {command}")


def _kernels(profile: Profile) -> None:
    total = sum(kernel.microseconds for kernel in profile.kernels) or 1.0
    columns = [Column("kernel"), Column("whose"), *(Column(t, right=True) for t in ("a call", "microseconds", "share"))]
    rows = [
        [
            kernel.name[:NAME],
            "own" if kernel.own else "library",
            f"{kernel.launches:g}",
            f"{kernel.microseconds:.1f}",
            f"{100 * kernel.microseconds / total:.0f}%",
        ]
        for kernel in profile.kernels[:SHOWN]
    ]
    table.show(columns, rows)


def _code(profile: Profile) -> None:
    titles = ("registers", "shared bytes", "local bytes", "vector bits", "instructions")
    rows = [
        [
            code.kernel[:NAME],
            code.target,
            *(
                "" if v is None else str(v)
                for v in (code.registers, code.shared_bytes, code.local_bytes, code.vector_bits)
            ),
            str(sum(code.instructions.values())),
        ]
        for code in profile.code[:SHOWN]
    ]
    table.show([Column("compiled"), Column("for"), *(Column(title, right=True) for title in titles)], rows)
