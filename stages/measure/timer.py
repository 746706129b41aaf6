"""Interleaved timing: one region of each contender a round, in an order drawn anew, by the referee's own clock.

CPU: the monotonic clock around the message that starts a region and the answer that ends it. CUDA: two timing events on
the referee's stream; the runner's stream waits for an event recorded between them and reports its end by another (both
travel by CUDA IPC and carry no time), so the runner never touches a clock that counts. What an empty region costs is
subtracted from each.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

import torch

from kernelwright.stages.sandbox.arena import Arena
from kernelwright.stages.sandbox.pool import Runner
from kernelwright.stages.types import Timing

EMPTY_REGIONS = 7
MAX_CALLS = 4000
"""Calls a region at most: a region's message must fit a packet, and a call costs at least its own Python overhead."""


class Clock(Protocol):
    """Times one region: the runner calls its module on `slots` in turn. Milliseconds."""

    method: str

    def region_ms(self, runner: Runner, slots: list[int], timeout_s: float) -> float:
        """Wall time of the whole region."""
        ...


class HostClock:
    """The referee's monotonic clock around the region's messages."""

    method = "monotonic clock of the referee around each region"

    def region_ms(self, runner: Runner, slots: list[int], timeout_s: float) -> float:
        """Wall time of the whole region."""
        start = time.perf_counter_ns()
        runner.ask("run", timeout_s, slots=slots)
        return (time.perf_counter_ns() - start) / 1e6


class DeviceClock:
    """Events on the referee's stream, chained to each runner's by events that carry no time."""

    method = "CUDA events on the referee's stream, chained to the runner's by IPC events"

    def __init__(self) -> None:
        # Keyed by the runner itself: the kernel gives process numbers out again.
        self._events: WeakKeyDictionary[Runner, tuple[torch.cuda.Event, torch.cuda.Event]] = WeakKeyDictionary()

    def _connect(self, runner: Runner, timeout_s: float) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Exchange events with a runner that has loaded its module: (go, done)."""
        go = torch.cuda.Event(enable_timing=False, interprocess=True)
        go.record()
        torch.cuda.synchronize()
        answer = runner.ask("events", timeout_s, go=bytes(go.ipc_handle()).hex())
        done = torch.cuda.Event.from_ipc_handle(torch.cuda.current_device(), bytes.fromhex(answer["done"]))
        self._events[runner] = go, done
        return go, done

    def region_ms(self, runner: Runner, slots: list[int], timeout_s: float) -> float:
        """Device time from the moment the runner may start to the end of its last kernel."""
        go, done = self._events.get(runner) or self._connect(runner, timeout_s)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        go.record()
        runner.ask("run", timeout_s, slots=slots)
        done.wait()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))


def clock_for(device: str) -> Clock:
    """The clock of a device."""
    return DeviceClock() if device == "cuda" else HostClock()


class Stopwatch:
    """Samples of several contenders that share an arena."""

    def __init__(self, arena: Arena, clock: Clock, region_ms: float, timeout_s: float, seed: int) -> None:
        self.arena = arena
        self.clock = clock
        self.target_ms = region_ms
        self.timeout_s = timeout_s
        self.random = random.Random(seed)
        self.calls: dict[str, int] = {}
        self.empty_ms: dict[str, float] = {}
        self.samples_ms: dict[str, list[float]] = {}

    def calibrate(self, name: str, runner: Runner) -> None:
        """Warm a contender up, take what an empty region costs, and choose how many calls fill a region."""
        ring = self._ring(self.arena.slots)
        self.clock.region_ms(runner, ring[:2], self.timeout_s)
        self.empty_ms[name] = statistics.median(
            self.clock.region_ms(runner, [], self.timeout_s) for _ in range(EMPTY_REGIONS)
        )
        calls = 1
        while True:
            took = self.clock.region_ms(runner, self._ring(calls), self.timeout_s) - self.empty_ms[name]
            if took >= self.target_ms / 4 or calls >= MAX_CALLS:
                break
            calls = min(MAX_CALLS, calls * 4)
        self.calls[name] = min(MAX_CALLS, max(1, math.ceil(calls * self.target_ms / max(took, 1e-3))))
        self.samples_ms[name] = []

    def round(self, runners: Mapping[str, Runner], after: Callable[[str, Runner, int], None]) -> None:
        """One region of each contender, in random order. `after(name, runner, last slot)` runs outside the clock."""
        order = list(runners)
        self.random.shuffle(order)
        for name in order:
            slots = self._ring(self.calls[name])
            if len(slots) > 1:
                # One call outside the clock: after a pause the first one finds cold code and sleeping threads. Where
                # a single call fills the region, that is lost in it.
                self.clock.region_ms(runners[name], slots[-1:], self.timeout_s)
            took = self.clock.region_ms(runners[name], slots, self.timeout_s) - self.empty_ms[name]
            self.samples_ms[name].append(max(took, 1e-6) / len(slots))
            after(name, runners[name], slots[-1])

    def timing(self, name: str) -> Timing:
        """What has been sampled of one contender."""
        samples = tuple(self.samples_ms[name])
        return Timing(samples, statistics.median(samples), self.calls[name])

    def _ring(self, calls: int) -> list[int]:
        start = self.random.randrange(self.arena.slots)
        return [(start + i) % self.arena.slots for i in range(calls)]
