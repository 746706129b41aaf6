"""What the sampler sees of a real machine, with real neighbours."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.stages.measure import processes, state
from kernelwright.stages.measure.nvml import Gpu
from kernelwright.stages.measure.state import CpuProbe, Sampler, disturbed
from kernelwright.stages.types import DeviceState

BURN = """
import os, time
if {stranger} and os.fork(): os._exit(0)
end = time.monotonic() + 2
while time.monotonic() < end: pass
"""


def burn(stranger: bool) -> None:
    """Keep a core busy: by a child, or by an orphan that no longer descends from us."""
    subprocess.run([sys.executable, "-c", BURN.format(stranger=stranger)], check=True)
    if stranger:
        time.sleep(1.0)


def test_every_look_is_a_sample() -> None:
    sampler = Sampler("cpu")
    for _ in range(3):
        sampler.sample()
    assert len(sampler.samples) == 3
    clocks = sampler.state().clocks_mhz
    assert clocks == () or (len(clocks) == 3 and all(100 < clock < 10_000 for clock in clocks))


def test_a_neighbour_that_computes_is_seen() -> None:
    probe = CpuProbe()
    burn(stranger=True)
    reasons, others = probe.totals()
    assert "cores busy with other work" in reasons
    assert others >= 1


def test_what_our_own_children_compute_is_ours() -> None:
    probe = CpuProbe()
    before = processes.all_usage()
    burn(stranger=False)
    now = processes.all_usage()
    assert state._own_seconds(now) - state._own_seconds(before) > 1.0
    ours = {pid for pid in now if processes.is_ours(pid, now)}
    assert os.getpid() in ours
    assert os.getppid() not in ours
    assert probe.totals()


def test_a_quota_that_stops_us_is_a_reason(tmp_path: Path) -> None:
    sampler = Sampler("cpu")
    probe = sampler.probe
    assert isinstance(probe, CpuProbe)
    probe._quota = tmp_path / "cpu.stat"
    probe._quota.write_text("nr_periods 10\nnr_throttled 3\n")
    sampler.sample()
    assert sampler.samples[0].throttled == ("CPU quota of the control group",)
    sampler.sample()
    assert sampler.samples[1].throttled == ()
    assert "CPU quota of the control group" in sampler.state().throttled


def test_a_measurement_is_marked_with_what_was_seen() -> None:
    assert disturbed(DeviceState((1980, 1980))) == ""
    assert disturbed(DeviceState((1400,), ("power cap",), 1)) == "power cap; 1 other process on the device"
    assert disturbed(DeviceState(others=2)) == "2 other processes on the device"


def test_a_machine_without_a_gpu_answers_nothing_and_breaks_nothing() -> None:
    gpu = Gpu("00000000-0000-0000-0000-000000000000")
    assert (gpu.clock_mhz(), gpu.temperature_c(), gpu.power_w()) == (None, None, None)
    assert (gpu.throttled(), gpu.processes()) == ((), ())


@pytest.mark.gpu
def test_a_gpu_is_read_and_another_process_on_it_is_seen() -> None:
    import torch

    torch.zeros(1, device="cuda")
    sampler = Sampler("cuda")
    sampler.sample()
    sample = sampler.samples[0]
    assert sample.clock_mhz is not None
    assert 100 < sample.clock_mhz < 5000
    assert sample.temperature_c is not None
    assert sample.power_w is not None
    gpu = sampler.probe.gpu  # type: ignore[attr-defined]
    if os.getpid() not in gpu.processes():
        pytest.skip("the driver numbers processes otherwise here")
    before = sampler.state().others
    program = (
        "import os, torch\nif os.fork(): os._exit(0)\ntorch.zeros(1, device='cuda')\nprint('up', flush=True)\ninput()"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"up\n"
    sampler.sample()
    assert sampler.state().others >= before + 1
    child.stdin.close()
