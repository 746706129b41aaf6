"""Histories for the tests: members with the fields that matter."""

from collections.abc import Sequence

from hypothesis import strategies as st

from kernelwright.stages.evolve.member import Member
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.types import (
    Backend,
    Candidate,
    Environment,
    Measurement,
    Ratio,
    SpeedOfLight,
    Status,
    Timing,
    Verdict,
)

HERE = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11", 2)
TECHNIQUES = ("fusion", "dtype", "memory_access")
BOTTLENECKS = ("memory", "compute", "unknown")


def member(
    name: str,
    speedup: float | None = None,
    *,
    generation: int = 0,
    slot: int = 0,
    directive: str = "fusion: together",
    parents: Sequence[Member] = (),
    backend: Backend = Backend.CPP,
    bottleneck: str = "memory",
    light: float | None = None,
    screened_out: bool = False,
) -> Member:
    """`speedup` None: it is wrong. `light`: its share of the speed of light."""
    candidate = Candidate(f"# {name}\n", backend, "llm", directive, tuple(p.hash for p in parents))
    verdict, measurement = Verdict(Status.INCORRECT, "largest error"), None
    if speedup is not None:
        verdict = Verdict(Status.CORRECT)
        timing, ratio = Timing((1.0 / speedup,), 1.0 / speedup, 1), Ratio(speedup, speedup, speedup)
        bound = None if light is None else SpeedOfLight(1, 1, light, None, light, False)
        measurement = Measurement(timing, {}, {"eager": ratio}, "", screened_out, speed_of_light=bound)
    result = JobResult(name, candidate.hash, verdict, HERE, measurement=measurement)
    return Member(candidate, result, generation, slot, bottleneck)


@st.composite
def histories(draw: st.DrawFn) -> list[Member]:
    """Some generations of some slots, each member with a parent from before, some of them wrong."""
    found: list[Member] = []
    for generation in range(draw(st.integers(1, 9))):
        before = list(found)
        for slot in range(draw(st.integers(1, 5))):
            found.append(
                member(
                    f"{generation}/{slot}",
                    draw(st.none() | st.floats(0.1, 20.0)),
                    generation=generation,
                    slot=slot,
                    directive=draw(st.sampled_from([f"{t}: so" for t in (*TECHNIQUES, "tuning")])),
                    parents=[draw(st.sampled_from(before))] if before and draw(st.booleans()) else [],
                    backend=draw(st.sampled_from([Backend.CPP, Backend.TRITON])),
                    bottleneck=draw(st.sampled_from(BOTTLENECKS)),
                    screened_out=draw(st.booleans()),
                )
            )
    return found
