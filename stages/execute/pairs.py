"""A gain must be seen in more than one pair of processes.

Where a process's memory lies, on which cores its threads started: that is luck which lasts as long as the process, and
no number of rounds averages it out. Of two copies of one module on a busy two-core machine, one was 15 % faster in all
rounds of one comparison in a hundred. So what looks like a gain is timed again, by fresh processes of both sides.
"""

from __future__ import annotations

import dataclasses
import statistics

from kernelwright.stages.measure.stats import is_gain
from kernelwright.stages.types import Measurement, Ratio, Timing

OVER = "eager"
"""The baseline that a gain is a gain over."""


def looks_like_gain(measurement: Measurement) -> bool:
    """Whether this is to be seen again before it is believed."""
    return not measurement.screened_out and OVER in measurement.speedups and is_gain(measurement.speedups[OVER])


def merged(first: Measurement, other: Measurement) -> Measurement:
    """Both pairs' samples, and an interval of the speedup over eager that covers what either pair found."""
    baseline = _joined(first.baselines[OVER], other.baselines[OVER])
    candidate = _joined(first.candidate, other.candidate)
    ratios = first.speedups[OVER], other.speedups[OVER]
    ratio = Ratio(baseline.median_ms / candidate.median_ms, min(r.low for r in ratios), max(r.high for r in ratios))
    return dataclasses.replace(
        first,
        candidate=candidate,
        baselines={**first.baselines, OVER: baseline},
        speedups={**first.speedups, OVER: ratio},
        method=f"{first.method}; timed again in fresh processes of both sides, the interval covers either",
    )


def _joined(a: Timing, b: Timing) -> Timing:
    samples = (*a.samples_ms, *b.samples_ms)
    return Timing(samples, statistics.median(samples), a.calls_per_region)
