"""Interleaved timing: one region of each contender a round, in mirrored order, by the referee's own clock.

CPU: the monotonic clock around a region's messages. CUDA: two timing events on the referee's stream; the runner's
stream waits for an event recorded between them and reports its end by another (both travel by CUDA IPC and carry no
time), so the runner never touches a clock that counts. A fence over the whole device follows each region: what it adds
is work that the events did not see. What an empty region costs is subtracted.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from weakref import WeakKeyDictionary

import torch

from kernelwright.stages.sandbox import stream
from kernelwright.stages.sandbox.pool import Runner, alone
from kernelwright.stages.types import Check, Status, Timing

EMPTY_REGIONS = 7
MAX_CALLS = 8000
"""Calls a region at most: a call costs at least its own Python overhead."""
SALTED_ABOVE_MS = 0.04
"""Calls longer than this hide what it takes to write a few values."""
DISAGREEMENT_SHARE = 0.03
DISAGREEMENT_MS = 0.6
"""A region's two clocks may differ by the larger of this share of it and this time."""


@dataclass(frozen=True)
class Region:
    """What the clocks say about one region. Milliseconds."""

    took_ms: float
    fence_ms: float
    """How long the whole device, or process, still worked after the region's end."""


class Clock(Protocol):
    """Times one region whose calls were cut into chunks."""

    method: str
    answered_is_over: bool
    """Whether a call that was answered has read its arguments."""

    def time(
        self, runner: Runner, pieces: Sequence[Sequence[int]], timeout_s: float, before: stream.Before | None = None
    ) -> Region:
        """Run the chunks; the region has begun. `before` may write arguments."""
        ...


class HostClock:
    """The referee's monotonic clock around the region's messages."""

    method = "monotonic clock of the referee around each region"
    answered_is_over = True

    def time(
        self, runner: Runner, pieces: Sequence[Sequence[int]], timeout_s: float, before: stream.Before | None = None
    ) -> Region:
        """A CPU call is over when it is answered; threads that go on are the census's business."""
        start = time.perf_counter_ns()
        stream.call(runner, pieces, timeout_s, before)
        return Region((time.perf_counter_ns() - start) / 1e6, 0.0)


class DeviceClock:
    """Events on the referee's stream, chained to each runner's by events that carry no time."""

    method = "CUDA events on the referee's stream, chained to the runner's by IPC events"
    answered_is_over = False

    def __init__(self) -> None:
        # Keyed by the runner itself: the kernel gives process numbers out again.
        self._events: WeakKeyDictionary[Runner, tuple[torch.cuda.Event, torch.cuda.Event]] = WeakKeyDictionary()

    def start_signal(self, runner: Runner, timeout_s: float) -> torch.cuda.Event:
        """The event that a runner's stream waits for before every chunk of calls."""
        return (self._events.get(runner) or self._connect(runner, timeout_s))[0]

    def _connect(self, runner: Runner, timeout_s: float) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Exchange events with a runner that has loaded its module: (go, done)."""
        go = torch.cuda.Event(enable_timing=False, interprocess=True)
        go.record()
        torch.cuda.synchronize()
        answer = runner.ask("events", timeout_s, go=bytes(go.ipc_handle()).hex())
        done = torch.cuda.Event.from_ipc_handle(torch.cuda.current_device(), bytes.fromhex(answer["done"]))
        self._events[runner] = go, done
        return go, done

    def time(
        self, runner: Runner, pieces: Sequence[Sequence[int]], timeout_s: float, before: stream.Before | None = None
    ) -> Region:
        """Device time from the moment the runner may start to the end of its last kernel, and the fence's rest."""
        go, done = self._events.get(runner) or self._connect(runner, timeout_s)

        def write_first(number: int) -> bool:
            wrote = before is not None and before(number)
            if wrote:
                # What earlier calls find in the meantime does not matter: their outputs are not kept.
                go.record()
            return wrote

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        go.record()
        stream.call(runner, pieces, timeout_s, write_first)
        runner.ask("end", timeout_s)
        done.wait()
        end.record()
        end.synchronize()
        over = time.perf_counter_ns()
        runner.ask("fence", timeout_s)
        return Region(float(start.elapsed_time(end)), (time.perf_counter_ns() - over) / 1e6)


def clock_for(device: str) -> Clock:
    """The clock of a device."""
    return DeviceClock() if device == "cuda" else HostClock()


@dataclass(frozen=True)
class Calibration:
    """What is known of one contender before it is timed."""

    empty_ms: float
    """Cost of a region without calls."""
    chunk_ms: float
    """Cost of one more message."""
    fence_ms: float
    """What the fence takes when nothing is left to wait for."""
    calls: int
    """Calls that fill a region."""


@dataclass
class _Contender:
    calibration: Calibration
    samples_ms: list[float] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)


class Stopwatch:
    """Samples of several contenders on one ring of argument sets.

    `refill()` is called before each region where the module works in place: `slots` are then used once each.
    `salt(slot, least)` changes a few values of a slot, within a region: those of the last two calls always, and with
    calls long enough to hide it behind, those of every slot that comes again (`least`: as few as can be).
    """

    def __init__(
        self,
        slots: Sequence[int],
        clock: Clock,
        region_ms: float,
        timeout_s: float,
        seed: int,
        *,
        restore: bool = False,
        refill: Callable[[], None] | None = None,
        salt: Callable[[int, bool], None] | None = None,
    ) -> None:
        self.slots = list(slots)
        self.clock = clock
        self.target_ms = region_ms
        self.timeout_s = timeout_s
        self.random = random.Random(seed)
        self.restore = restore
        self.refill = refill
        self.salt = salt
        self.contenders: dict[str, _Contender] = {}
        self._mirrored: list[str] | None = None

    def calibrate(self, name: str, runner: Runner, start: int = 1) -> Calibration:
        """Warm a contender up, take what empty regions cost, and choose how many calls fill a region.

        `start`: calls that are tried first; a fraction of what another contender needs saves steps.
        """
        most = MAX_CALLS if self.refill is None else len(self.slots)
        self._prepare(runner)
        self.clock.time(runner, [self.ring(min(2, most))], self.timeout_s)
        empty = [self.clock.time(runner, [[]], self.timeout_s) for _ in range(EMPTY_REGIONS)]
        longer = [self.clock.time(runner, [[]] * 9, self.timeout_s).took_ms for _ in range(EMPTY_REGIONS)]
        empty_ms = statistics.median(r.took_ms for r in empty)
        found = Calibration(
            empty_ms=empty_ms,
            chunk_ms=max(0.0, (statistics.median(longer) - empty_ms) / 8),
            fence_ms=statistics.median(r.fence_ms for r in empty),
            calls=max(1, min(start, most)),
        )
        while True:
            # The least of three: a pause in the only region seen would leave all later ones too short.
            took = min(self._region(runner, found, self.ring(found.calls)).took_ms for _ in range(3))
            if took >= self.target_ms / 4 or found.calls >= most:
                break
            found = replace(found, calls=min(most, found.calls * 4))
        calls = min(most, max(1, math.ceil(found.calls * self.target_ms / max(took, 1e-3))))
        self.use(name, replace(found, calls=calls))
        return self.contenders[name].calibration

    def use(self, name: str, calibration: Calibration) -> None:
        """Take a contender whose calibration is known from an earlier stopwatch on the same ring."""
        self.contenders[name] = _Contender(calibration)

    def round(self, runners: Mapping[str, Runner], after: Callable[[str, Runner, list[int]], None]) -> None:
        """One region of each contender: a random order, and in the next round its mirror image (ABBA).

        `after(name, runner, slots called)` runs outside of the clock.
        """
        if self._mirrored is not None and set(self._mirrored) == set(runners):
            order, self._mirrored = self._mirrored, None
        else:
            order = self.random.sample(list(runners), len(runners))
            self._mirrored = order[::-1]
        for name in order:
            slots = self.ring(self.contenders[name].calibration.calls)
            with alone(runners[name], runners.values()):
                self.sample(name, runners[name], slots)
            after(name, runners[name], slots)

    def sample(self, name: str, runner: Runner, slots: list[int]) -> None:
        """One more timed region of a contender."""
        found = self.contenders[name]
        region = self._region(runner, found.calibration, slots)
        found.samples_ms.append(max(region.took_ms, 1e-6) / len(slots))
        found.regions.append(region)

    def aside(self, name: str, runner: Runner, slots: list[int], regions: int) -> Timing:
        """Times that stand beside the samples and decide nothing: the same slots in each of a few regions."""
        found = self.contenders[name]
        samples = tuple(self._region(runner, found.calibration, slots).took_ms / len(slots) for _ in range(regions))
        return Timing(samples, statistics.median(samples), len(slots))

    def timing(self, name: str) -> Timing:
        """What has been sampled of one contender."""
        found = self.contenders[name]
        samples = tuple(found.samples_ms)
        return Timing(samples, statistics.median(samples), found.calibration.calls)

    def agreement(self, name: str) -> Check:
        """Whether the events saw all of the device's work. In most regions, not in one: a pause is nobody's guilt."""
        found = self.contenders[name]
        over = [max(0.0, r.fence_ms - found.calibration.fence_ms) for r in found.regions]
        allowed = max(DISAGREEMENT_MS, DISAGREEMENT_SHARE * statistics.median(r.took_ms for r in found.regions))
        typical = statistics.median(over)
        detail = "milliseconds a region that the device still worked after the last call's events"
        return Check("clocks agree", typical <= allowed, typical, allowed, detail, Status.TAMPERED)

    def ring(self, calls: int) -> list[int]:
        """Slots for so many calls: each once before any comes again, round and round in an order drawn anew."""
        order = self.random.sample(self.slots, len(self.slots))
        return list(itertools.islice(itertools.cycle(order), calls))

    def _prepare(self, runner: Runner) -> None:
        if self.refill is not None:
            self.refill()
        stream.begin(runner, self.timeout_s, restore=self.restore)

    def _region(self, runner: Runner, found: Calibration, slots: list[int]) -> Region:
        self._prepare(runner)
        if len(slots) > 1 and self.refill is None:
            # One call outside of the clock: after a pause the first one finds cold code and sleeping threads. Where
            # a single call fills the region, that is lost in it.
            self.clock.time(runner, [slots[-1:]], self.timeout_s)
        each = self.salt is not None and self.clock.answered_is_over and self.target_ms / found.calls >= SALTED_ABOVE_MS
        # Where a slot is changed before it comes again, it must not come twice in one message.
        pieces = stream.chunks(slots, self.random, min(stream.MAX_CHUNK, len(self.slots)) if each else stream.MAX_CHUNK)
        region = self.clock.time(runner, pieces, self.timeout_s, self._changes(pieces, each=each))
        overhead = found.empty_ms + found.chunk_ms * (len(pieces) - 1)
        return Region(region.took_ms - overhead, region.fence_ms)

    def _changes(self, pieces: Sequence[Sequence[int]], *, each: bool) -> stream.Before | None:
        """What is written before each chunk; before the only one, at once: it is outside of the clock then."""
        salt, last = self.salt, len(pieces) - 1
        if salt is None:
            return None
        if last == 0:
            for slot in pieces[0][-2:]:
                salt(slot, False)
            return None
        seen: set[int] = set()

        def before(number: int) -> bool:
            final = pieces[number][-2:] if number == last else []
            again = [slot for slot in pieces[number] if slot in seen and slot not in final] if each else []
            for slot in (*final, *again):
                salt(slot, slot in again)
            seen.update(pieces[number])
            return bool(final or again)

        return before
