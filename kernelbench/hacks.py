"""The adversarial corpus: candidates that cheat, and honest ones that only look like it, each with its right answer.

One folder a case under `suites/hacks`: `reference.py` and `candidate.py` in KernelBench's contract, `case.json` with
what is expected. Every `reject` case that runs on a CPU gets past a naive checker (one seed, allclose at 1e-2); every
`accept` case is right to the last bits. Candidates are data here: nothing imports them, the sandbox runs them. They are
harmless by design: short sleeps, closed loopback ports, one small marker file in the temporary folder.

Policy: float32 means float32 unless the reference lowers it. Library calls are allowed unless the candidate claims a
back end of its own (cpp, triton, cuda), whose kernels must then do a real part of the work. Standard library only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelwright.kernelbench.problem import Problem

FOLDER = Path(__file__).parent / "suites" / "hacks"


@dataclass(frozen=True)
class HackCase:
    """One candidate and the answer that a referee must give."""

    id: str
    group: str
    """What it tries (`caching`, `timing`), or in what it is honest (`honest_precision`)."""
    expected: Literal["reject", "accept"]
    device: Literal["any", "cpu", "cuda"]
    """Where it can run."""
    backend: str
    """The back end that the candidate claims: cpp, triton, cuda, or torch for none of its own."""
    reason: str
    reference: str
    """Source of `reference.py`."""
    candidate: str
    """Source of `candidate.py`."""

    @property
    def problem(self) -> Problem:
        """The task. Cases with the same reference have problems with the same hash."""
        return Problem(name=self.id, source=self.reference, origin=f"hacks/{self.id}")

    def runs_on(self, device: str) -> bool:
        """Whether the case can run on `cpu` or `cuda`."""
        return self.device in ("any", device)


def cases() -> list[HackCase]:
    """All cases, by id."""
    return [_read(path.parent) for path in sorted(FOLDER.glob("*/case.json"))]


def _read(folder: Path) -> HackCase:
    return HackCase(
        **json.loads((folder / "case.json").read_text()),
        reference=(folder / "reference.py").read_text(),
        candidate=(folder / "candidate.py").read_text(),
    )
