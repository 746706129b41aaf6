"""Given figures, the bottleneck is X because Y."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.profile import ncu
from kernelwright.stages.profile.interpret import MOST_METRICS, RULES, interpret
from kernelwright.stages.profile.plain import words
from kernelwright.stages.profile.report import (
    Bottleneck,
    KernelCode,
    KernelCounters,
    KernelTime,
    Metric,
    Profile,
    Tier,
)
from kernelwright.stages.types import SpeedOfLight

ONE = (KernelTime("k", 1.0, 900.0, own=True),)
TWO = (KernelTime("a", 1.0, 450.0), KernelTime("b", 1.0, 450.0))


def light(byte_ms: float, flop_ms: float | None) -> SpeedOfLight:
    return SpeedOfLight(1, 1, byte_ms, flop_ms, 0.0, False)


def counted(sm: float, memory: float, theoretical: float = 100.0) -> tuple[KernelCounters, ...]:
    return (KernelCounters("k", 1, {ncu.SM: sm, ncu.MEMORY: memory, ncu.THEORETICAL: theoretical}),)


def gpu(**given: Any) -> Profile:
    return Profile("hash", "cuda", "a GPU", Tier.TORCH, call_ms=1.0, **{"kernels": ONE, **given})


def cpu(**given: Any) -> Profile:
    return Profile("hash", "cpu", "a CPU", Tier.TORCH, call_ms=1.0, watched_ms=1.0, **{"kernels": ONE, **given})


def code(**given: Any) -> tuple[KernelCode, ...]:
    return (KernelCode("k", **{"target": "sm_90", "registers": 32, "instructions": {"fp32": 9}, **given}),)


CASES = {
    "kernels fill a tenth of the call": (gpu(kernels=(KernelTime("k", 9.0, 100.0),)), Bottleneck.LAUNCH),
    "counters: memory busier than arithmetic": (gpu(counters=counted(70.0, 85.0)), Bottleneck.MEMORY),
    "counters: arithmetic busier": (gpu(counters=counted(85.0, 70.0)), Bottleneck.COMPUTE),
    "counters: nothing busy, few warps fit": (gpu(counters=counted(20.0, 30.0, 25.0)), Bottleneck.OCCUPANCY),
    "counters: nothing busy, warps fit": (gpu(counters=counted(20.0, 30.0)), Bottleneck.LATENCY),
    "counters say more than the roofline": (
        gpu(counters=counted(20.0, 30.0), speed_of_light=light(0.9, 0.1)),
        Bottleneck.LATENCY,
    ),
    "near the byte bound": (gpu(speed_of_light=light(0.8, 0.1)), Bottleneck.MEMORY),
    "near the FLOP bound": (gpu(speed_of_light=light(0.1, 0.8)), Bottleneck.COMPUTE),
    "registers spill": (gpu(speed_of_light=light(0.2, 0.1), code=code(local_bytes=64)), Bottleneck.OCCUPANCY),
    "registers leave room for few warps": (
        gpu(speed_of_light=light(0.2, 0.1), code=code(registers=255)),
        Bottleneck.OCCUPANCY,
    ),
    "two kernels, each over whole tensors": (gpu(kernels=TWO, speed_of_light=light(0.2, 0.1)), Bottleneck.MEMORY),
    "one kernel, far from both bounds": (gpu(speed_of_light=light(0.2, 0.1)), Bottleneck.LATENCY),
    "a product far from the FLOP bound": (gpu(speed_of_light=light(0.1, 0.3)), Bottleneck.COMPUTE),
    "CPU: mostly Python": (
        cpu(kernels=(KernelTime("k", 9.0, 100.0),), speed_of_light=light(0.1, 0.0)),
        Bottleneck.LAUNCH,
    ),
    "CPU: much Python, yet as fast as memory": (
        cpu(kernels=(KernelTime("k", 9.0, 400.0),), speed_of_light=light(0.7, 0.0)),
        Bottleneck.MEMORY,
    ),
    "CPU: scalar loops": (
        cpu(speed_of_light=light(0.2, 0.0), code=code(target="x86-64", registers=None, instructions={"scalar": 9})),
        Bottleneck.COMPUTE,
    ),
    "CPU: vectorised, one pass": (
        cpu(
            speed_of_light=light(0.2, 0.0),
            code=code(target="x86-64", registers=None, instructions={"packed": 9, "scalar": 3}),
        ),
        Bottleneck.LATENCY,
    ),
    "nothing is known": (Profile("hash", "cpu", "a CPU"), Bottleneck.UNKNOWN),
}


@pytest.mark.parametrize("name", CASES)
def test_the_bottleneck(name: str) -> None:
    profile, expected = CASES[name]
    finding = interpret(profile)
    assert finding.bottleneck is expected
    assert bool(finding.advice) is (expected is not Bottleneck.UNKNOWN)
    if profile.kernels:
        assert 3 <= len(finding.metrics) <= MOST_METRICS


def test_every_rule_decides_in_some_case() -> None:
    advised = {interpret(profile).advice for profile, _ in CASES.values()}
    assert {advice for _, _, advice in RULES} <= advised


figures = st.one_of(st.none(), st.floats(0.0, 1e6))
names = st.text(max_size=300).map(words)
profiles = st.builds(
    Profile,
    candidate_hash=st.just("hash"),
    device=st.sampled_from(["cpu", "cuda"]),
    device_name=names,
    tier=st.sampled_from([None, *Tier]),
    missing=st.dictionaries(st.sampled_from([tier.value for tier in Tier]), names),
    call_ms=figures,
    watched_ms=figures,
    kernels=st.lists(st.builds(KernelTime, names, st.floats(0, 99), st.floats(0, 1e6), st.booleans())).map(tuple),
    counters=st.lists(
        st.builds(KernelCounters, names, st.integers(1, 9), st.dictionaries(st.sampled_from(ncu.METRICS), figures))
    ).map(tuple),
    code=st.lists(
        st.builds(
            KernelCode,
            names,
            st.sampled_from(["sm_90", "x86-64"]),
            st.one_of(st.none(), st.integers(0, 300)),
            st.one_of(st.none(), st.integers(0, 300_000)),
            st.one_of(st.none(), st.integers(0, 300)),
            st.one_of(st.none(), st.integers(0, 1024)),
            st.dictionaries(st.sampled_from(["packed", "scalar", "fp32"]), st.integers(0, 99)),
        )
    ).map(tuple),
    speed_of_light=st.one_of(st.none(), st.builds(light, st.floats(0, 1e3), figures)),
)


@given(profiles)
def test_whatever_the_figures_a_profile_is_short_text_and_whole_json(profile: Profile) -> None:
    found = dataclasses.replace(profile, finding=interpret(profile))
    assert len(found.finding.metrics) <= MOST_METRICS
    assert len(found.summary().split("\n")) < 15
    assert from_json(Profile, json.loads(json.dumps(to_json(found)))) == found


def test_a_metric_without_a_value_is_not_available() -> None:
    assert str(Metric("DRAM", None, "% of peak")) == "DRAM n/a"
    assert str(Metric("call", 1.23456, "ms")) == "call 1.23 ms"
