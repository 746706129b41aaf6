"""A candidate-like module in a confined process: what came of it, and what was seen."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelwright.stages.sandbox.confine import Limits, Phase
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed, Zygote

TIMEOUT_S = 180.0
LOAD = {
    "class_name": "ModelNew",
    "device": "cpu",
    "training": True,
    "threads": 2,
    "allow_tf32": False,
    "compile_mode": None,
    "environment": {},
    "inspect": False,
}
HEADER = "import ctypes, os, socket, subprocess, sys, tempfile, threading, time\nimport torch\n"


@dataclass(frozen=True)
class Trial:
    """How it went."""

    said: str = ""
    """What the call raised as RuntimeError: the way in which these candidates speak."""
    kind: str = ""
    seen: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)


def forward(body: str, top: str = "") -> str:
    """A candidate's source: statements at import, and those of `forward(self, x)`."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"{HEADER}{top}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}"


def load(runner: Runner, source: str, device: str = "cpu") -> None:
    """Load a source into a runner, with one slot whose argument is 3."""
    path, init = runner.home / "candidate.py", runner.home / "init.pkl"
    path.write_text(source)
    init.write_bytes(pickle.dumps([]))
    runner.ask("load", TIMEOUT_S, path=str(path), init=str(init), **LOAD | {"device": device})
    runner.ask("slot", TIMEOUT_S, slot=0, arguments={"list": [{"value": 3}]}, tensors=[])


def attempt(
    zygote: Zygote,
    source: str,
    phase: Phase = Phase.RUN,
    caches: Sequence[Path] = (),
    limits: Limits | None = None,
    memory_bytes: int | None = None,
    device: str = "cpu",
) -> Trial:
    """Load, call once, ask what was seen, and end it."""
    runner = zygote.spawn(phase, caches, limits, memory_bytes)
    said = kind = ""
    try:
        try:
            load(runner, source, device)
            runner.ask("call", TIMEOUT_S, slots=[0])
        except RunnerFailed as failure:
            said, kind = failure.message, failure.kind
        if not runner.alive:
            return Trial(said, kind)
        found = runner.ask("witness", TIMEOUT_S)
        return Trial(said, kind, found["seen"], found["changes"], found["flags"])
    finally:
        runner.kill()
