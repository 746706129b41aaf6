"""How a candidate's time compares with the least that the device could take for one problem's calls."""

from __future__ import annotations

import torch

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.execute.ring import Ring
from kernelwright.stages.measure import roofline, traffic
from kernelwright.stages.types import Check, SpeedOfLight

PROBING_S = 3.0
"""Seconds for finding out which inputs a call must read, once a problem."""


class Light:
    """The bounds of one problem's calls, worked out when they are first asked for."""

    def __init__(self, model: torch.nn.Module, ring: Ring, device: str, precision: Precision) -> None:
        self.model = model
        self.ring = ring
        self.device = device
        self.precision = precision
        self._least: tuple[int, int] | None = None
        """Bytes and FLOPs."""

    def judge(self, milliseconds: float) -> tuple[SpeedOfLight, Check | None]:
        """The byte and FLOP bounds beside a time. The device must be ours alone."""
        ring, case = self.ring, self.ring.drawn[0]
        if self._least is None:
            least = traffic.traffic(self.model, case, ring.cache_bytes, budget_s=PROBING_S)
            self._least = least.bytes_least, traffic.flops(self.model, case)
        bytes_least, flops = self._least
        dtype = next((t.dtype for t in case.tensors if t.is_floating_point()), torch.float32)
        file = roofline.default_cache()
        light, check = None, None
        # A candidate that beats the bound gets the device's peaks measured once more before it is refused.
        for again in (False, True):
            light, check = roofline.judge(
                milliseconds,
                bytes_least,
                flops,
                roofline.peaks(self.device, file, again=again),
                self.precision,
                ring.cache_bytes,
                ring.cold,
                dtype=dtype,
            )
            if check is None or check.passed:
                break
        assert light is not None
        return light, check
