"""Timing one verified candidate beside the baselines, on inputs that nobody has seen before.

Every round refills the whole ring (`ring.py`). Some outputs of timed calls are compared with the oracle's answer to
exactly what their arguments held.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping

from kernelwright.stages.execute.job import Effort
from kernelwright.stages.execute.ring import Ring
from kernelwright.stages.measure import stats
from kernelwright.stages.measure.state import Sampler
from kernelwright.stages.measure.timer import Clock, Stopwatch
from kernelwright.stages.sandbox.arena import connect
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed, alone
from kernelwright.stages.types import Check, Measurement, Timing
from kernelwright.stages.verify import gate

CANDIDATE = "candidate"
TIMED_CASES = 3
"""Drawn argument sets that the ring's contents are made from."""
SINGLE_ABOVE_BYTES = 2**30
"""Arguments larger than this are drawn once: copies would take the memory that the module needs."""
CLEARLY_SLOWER = 1.25
"""A candidate that is surely slower than the incumbent by this factor is dropped."""
CHECKED_ROUNDS = 0.25
"""Share of the rounds in which an output of the candidate's timed calls is compared; the last one always is."""
FIRST_TRY = 4
"""A candidate's first calibrating region has this part of a baseline's calls."""
WARM_REGIONS = 3
GRAPH_BELOW_MS = 0.02
"""A kernel faster than this is mostly launch: its replay as a CUDA graph is shown beside it."""


class Session:
    """One candidate's timing."""

    def __init__(
        self,
        ring: Ring,
        clock: Clock,
        effort: Effort,
        baselines: Mapping[str, Runner],
        candidate: Runner,
        source: random.Random,
    ) -> None:
        self.ring = ring
        self.clock = clock
        self.effort = effort
        self.random = source
        self.candidate = candidate
        self.contenders = {**baselines, CANDIDATE: candidate}
        self.timeout_s = max(effort.timeout_s, effort.region_ms)
        self.sampler = Sampler(ring.arena.device)
        self.watch = Stopwatch(
            ring.slots,
            clock,
            effort.region_ms,
            self.timeout_s,
            source.getrandbits(32),
            restore=ring.changes_state,
            refill=(lambda: ring.refill(source)) if ring.in_place else None,
            salt=None if ring.in_place else lambda slot, least: ring.salt(slot, source, least=least),
        )

    def run(self, checks: list[Check], best_over_eager: float | None, absent: Mapping[str, str]) -> Measurement | None:
        """Calibrate, then interleaved rounds. Checks of timed outputs are added to `checks`; a failed one ends it."""
        self._connect()
        for name, contender in self.contenders.items():
            if name in self.ring.calibrations:
                self.watch.use(name, self.ring.calibrations[name])
                continue
            known = [c.calls for c in self.ring.calibrations.values()]
            with alone(contender, self.contenders.values()):
                found = self.watch.calibrate(name, contender, start=min(known, default=0) // FIRST_TRY)
            if name != CANDIDATE:
                self.ring.calibrations[name] = found
        rounds = self.effort.rounds
        checked = {rounds - 1, *self.random.sample(range(rounds), round(CHECKED_ROUNDS * rounds))}
        screened = False
        for number in range(rounds):
            self.ring.refill(self.random)

            def after(name: str, runner: Runner, slots: list[int], compare: bool = number in checked) -> None:
                if name == CANDIDATE and compare:
                    checks.extend(self._compare(slots))

            self.watch.round(self.contenders, after)
            if any(not c.passed for c in checks):
                return None
            self.sampler.sample()
            if 0 < self.effort.screen_rounds <= number + 1 < rounds and self._clearly_slower(best_over_eager):
                screened = True
                break
        checks.append(self.watch.agreement(CANDIDATE))
        return self._measurement(screened, absent)

    def alone(self, regions: int) -> Timing:
        """The candidate by itself, and nothing compared: for whoever wants to know where its time goes."""
        self._connect()
        calls = self.watch.calibrate(CANDIDATE, self.candidate).calls
        for _ in range(regions):
            self.watch.sample(CANDIDATE, self.candidate, self.watch.ring(calls))
        return self.watch.timing(CANDIDATE)

    def aside(self, measurement: Measurement) -> tuple[Timing | None, float | None]:
        """What is shown and decides nothing: the candidate on warm inputs, and milliseconds replayed as a CUDA graph.

        The candidate's runner is of no further use afterwards.
        """
        if not self.effort.detailed or self.ring.in_place or measurement.screened_out:
            return None, None
        calls = measurement.candidate.calls_per_region
        one_slot = self.ring.slots[:1] * calls
        warm = self.watch.aside(CANDIDATE, self.candidate, one_slot, WARM_REGIONS)
        replay_ms = None
        if self.ring.arena.device == "cuda" and measurement.candidate.median_ms < GRAPH_BELOW_MS:
            # A module that cannot be captured is none the worse for it.
            with contextlib.suppress(RunnerFailed):
                self.candidate.ask("graph", self.timeout_s, slot=one_slot[0])
                replay_ms = self.watch.aside(CANDIDATE, self.candidate, one_slot, WARM_REGIONS).median_ms
        return warm, replay_ms

    def _connect(self) -> None:
        connect(self.candidate, [self.ring.arena])
        self.ring.arena.load_state(self.candidate, self.timeout_s)

    def _compare(self, slots: list[int]) -> list[Check]:
        """One of the outputs that are still held, chosen now, and read when the arguments are there no more."""
        back = self.random.choice([1, 2]) if len(slots) > 1 and not self.ring.changes_state else 1
        expected = self.ring.answer(slots[-back])
        taken = [] if self.ring.lends_inputs else slots[-back:]
        self.ring.spoil(taken)
        found = gate.judge(self.candidate, self.ring.arena, expected, self.timeout_s, "timed call", back=back)
        self.ring.mend(taken)
        return found

    def _clearly_slower(self, best_over_eager: float | None) -> bool:
        if best_over_eager is None or "eager" not in self.contenders:
            return False
        eager, candidate = (self.watch.timing(name).samples_ms for name in ("eager", CANDIDATE))
        return stats.loses(eager, candidate, CLEARLY_SLOWER * best_over_eager)

    def _measurement(self, screened: bool, absent: Mapping[str, str]) -> Measurement:
        candidate = self.watch.timing(CANDIDATE)
        baselines = {name: self.watch.timing(name) for name in self.contenders if name != CANDIDATE}
        missing = "".join(f"; no baseline {name}: {why}" for name, why in absent.items())
        ring = self.ring
        method = (
            f"{self.clock.method}; {len(candidate.samples_ms)} interleaved rounds, each in the mirrored order of the "
            f"one before; inputs rotate over {len(ring.slots)} sets "
            f"({ring.drawn[0].nbytes * len(ring.slots) / 2**20:.0f} MiB) with new values every round{missing}"
        )
        return Measurement(
            candidate=candidate,
            baselines=baselines,
            speedups={name: stats.speedup(t.samples_ms, candidate.samples_ms) for name, t in baselines.items()},
            method=method,
            screened_out=screened,
            device_state=self.sampler.state(),
        )
