"""What the device does while it is timed: read and logged, never set.

A throttled or shared device does not stop a measurement: it marks it (`disturbed`), and whoever measures decides how
often to try again. A guard that throws every sample away would never end.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernelwright.stages.measure import devices, processes
from kernelwright.stages.measure.nvml import Gpu
from kernelwright.stages.measure.processes import TICKS_PER_S, Usage
from kernelwright.stages.types import DeviceState

BUSY_CORES = 0.2
"""CPU time that others, or one other process, may take of the cores that are timed, in cores; below, it is noise."""
LEAST_S = 0.03
"""CPU time is counted in hundredths of a second: less than three says nothing."""


@dataclass(frozen=True)
class Sample:
    """One look at the device. None: this machine does not say."""

    clock_mhz: int | None = None
    throttled: tuple[str, ...] = ()
    temperature_c: int | None = None
    power_w: float | None = None


class Probe(Protocol):
    """Reads one device."""

    def look(self) -> Sample:
        """The present state, in less than a millisecond."""
        ...

    def totals(self) -> tuple[tuple[str, ...], int]:
        """(reasons that only counters over the whole time show, other owners' processes that were seen)."""
        ...


class Sampler:
    """Looks at the device once a round. Make it when the measurement begins: counters count from then."""

    def __init__(self, device: str) -> None:
        self.probe: Probe = GpuProbe() if device == "cuda" else CpuProbe()
        self.samples: list[Sample] = []

    def sample(self) -> None:
        """Look, outside of the clock."""
        self.samples.append(self.probe.look())

    def state(self) -> DeviceState:
        """What has been seen since the sampler was made."""
        reasons, others = self.probe.totals()
        seen = [reason for sample in self.samples for reason in sample.throttled]
        return DeviceState(
            clocks_mhz=tuple(s.clock_mhz for s in self.samples if s.clock_mhz is not None),
            throttled=tuple(dict.fromkeys([*seen, *reasons])),
            others=others,
        )


def disturbed(state: DeviceState) -> str:
    """Why a measurement in this state is marked, in words; empty when nothing was seen."""
    shared = f"{state.others} other process{'' if state.others == 1 else 'es'} on the device" if state.others else ""
    return "; ".join([*state.throttled, *([shared] if shared else [])])


class GpuProbe:
    """NVML's answers for torch's present device."""

    def __init__(self) -> None:
        self.gpu = Gpu(devices.identity("cuda").removeprefix("cuda-"))
        self._ours: set[int] = set()
        self._others: set[int] = set()

    def look(self) -> Sample:
        """Clock, throttle reasons, temperature, power; and who else is there."""
        self._notice(self.gpu.processes())
        return Sample(self.gpu.clock_mhz(), self.gpu.throttled(), self.gpu.temperature_c(), self.gpu.power_w())

    def totals(self) -> tuple[tuple[str, ...], int]:
        """No counters; every process of others that any look has seen."""
        self._notice(self.gpu.processes())
        return (), len(self._others)

    def _notice(self, pids: tuple[int, ...]) -> None:
        if os.getpid() not in pids:
            # In a container the driver may number processes as the host does: nobody can tell whose they are.
            return
        for pid in set(pids) - self._ours - self._others:
            (self._ours if processes.is_ours(pid) else self._others).add(pid)


class CpuProbe:
    """What Linux says about the cores that this process may use."""

    def __init__(self) -> None:
        self.cores = sorted(os.sched_getaffinity(0))
        self._clock = _clock_file(self.cores[0])
        self._quota = _quota_file()
        self._throttled = self._times_throttled()
        self._began = time.monotonic()
        self._hot = _thermal_events(self.cores)
        self._before = processes.all_usage()
        self._busy_before, self._stolen_before = self._core_seconds()

    def look(self) -> Sample:
        """One core's clock, and whether the control group's quota has stopped us since the last look."""
        before, self._throttled = self._throttled, self._times_throttled()
        return Sample(_clock_mhz(self._clock), ("CPU quota of the control group",) if self._throttled > before else ())

    def totals(self) -> tuple[tuple[str, ...], int]:
        """Heat, time stolen by the hypervisor and time taken by others, since the probe was made."""
        elapsed = max(time.monotonic() - self._began, 1e-3)
        now = processes.all_usage()
        busy, stolen = self._core_seconds()
        own = _own_seconds(now) - _own_seconds(self._before)
        reasons = (
            ("thermal throttling", _thermal_events(self.cores) > self._hot),
            ("time stolen by the hypervisor", _much(stolen - self._stolen_before, elapsed)),
            ("cores busy with other work", _much(busy - self._busy_before - own, elapsed)),
        )
        return tuple(words for words, seen in reasons if seen), sum(_much(s, elapsed) for s in self._others(now))

    def _others(self, now: dict[int, Usage]) -> Iterator[float]:
        """CPU seconds of each process that is not ours."""
        for pid, found in now.items():
            if not processes.is_ours(pid, now):
                before = self._before.get(pid)
                yield found.seconds - (before.seconds if before else 0.0)

    def _core_seconds(self) -> tuple[float, float]:
        """(busy, stolen) seconds of our cores since the machine started."""
        busy = stolen = 0
        names = {f"cpu{core}" for core in self.cores}
        for line in Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if name in names:
                # proc(5): user nice system idle iowait irq softirq steal
                user, nice, system, _, _, irq, softirq, steal = (int(t) for t in ticks[:8])
                busy += user + nice + system + irq + softirq
                stolen += steal
        return busy / TICKS_PER_S, stolen / TICKS_PER_S

    def _times_throttled(self) -> int:
        if self._quota is None:
            return 0
        words = self._quota.read_text().split()
        return int(words[words.index("nr_throttled") + 1]) if "nr_throttled" in words else 0


def _much(seconds: float, elapsed_s: float) -> bool:
    return seconds >= LEAST_S and seconds / elapsed_s > BUSY_CORES


def _own_seconds(usage: dict[int, Usage]) -> float:
    return sum(found.seconds for pid, found in usage.items() if processes.is_ours(pid, usage))


def _clock_file(core: int) -> Path | None:
    for path in (Path(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq"), Path("/proc/cpuinfo")):
        if path.exists():
            return path
    return None


def _clock_mhz(path: Path | None) -> int | None:
    if path is None:
        return None
    with path.open("rb") as file:
        # /proc/cpuinfo is made while it is read: the first core's part is enough.
        text = file.read(1500).decode(errors="replace")
    if path.name == "scaling_cur_freq":
        return int(text) // 1000
    found = next((line for line in text.splitlines() if line.startswith("cpu MHz") and ":" in line), None)
    return None if found is None else int(float(found.split(":")[1]))


def _quota_file() -> Path | None:
    """cpu.stat of this process's control group, in version 2 or 1."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" or "cpu" in controllers.split(","):
                for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"):
                    # In a container the path may be the host's, and the group is mounted as the root.
                    for file in (Path(f"{base}{path}") / "cpu.stat", Path(base) / "cpu.stat"):
                        with contextlib.suppress(OSError):
                            if "nr_throttled" in file.read_text():
                                return file
    return None


def _thermal_events(cores: list[int]) -> int:
    total = 0
    for core in cores:
        for name in ("core_throttle_count", "package_throttle_count"):
            with contextlib.suppress(OSError, ValueError):
                total += int(Path(f"/sys/devices/system/cpu/cpu{core}/thermal_throttle/{name}").read_text())
    return total
