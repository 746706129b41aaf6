"""The device's peaks, and what they say about a candidate's time."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.measure import roofline
from kernelwright.stages.measure.roofline import Peaks, honest_tflops, judge, peaks
from kernelwright.stages.types import SpeedOfLight, Status

H200 = Peaks(copy_gb_s=4300.0, fp32_tflops=51.0, tf32_tflops=362.0, bf16_tflops=790.0)
L2 = 60 * 2**20
GIGABYTE = 10**9


def judged(ms: float, *, nbytes: int = GIGABYTE, flops: int = 0, cold: bool = True) -> tuple[SpeedOfLight, object]:
    return judge(ms, nbytes, flops, H200, Precision.STRICT, L2, cold)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Peaks, Path]:
    file = tmp_path_factory.mktemp("peaks") / "deeper" / "peaks.json"
    return peaks("cpu", file), file


def test_this_cpu_has_peaks(measured: tuple[Peaks, Path]) -> None:
    found, _ = measured
    assert 0.1 < found.copy_gb_s < 5000
    assert 0.001 < found.fp32_tflops < 100
    assert (found.tf32_tflops, found.bf16_tflops) == (None, None)


def test_they_are_measured_once_and_kept_beside_those_of_other_devices(
    measured: tuple[Peaks, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, file = measured
    stored = json.loads(file.read_text())
    stored["another device"] = stored[next(iter(stored))]
    file.write_text(json.dumps(stored))

    def never(device: str) -> Peaks:
        raise AssertionError("measured twice")

    with monkeypatch.context() as patch:
        patch.setattr(roofline, "_measure", never)
        assert peaks("cpu", file) == found
        with pytest.raises(AssertionError, match="measured twice"):
            peaks("cpu", file, again=True)
        patch.setattr(roofline, "_measure", lambda device: replace(found, copy_gb_s=2 * found.copy_gb_s))
        assert peaks("cpu", file, again=True).copy_gb_s == 2 * found.copy_gb_s
        patch.setattr(roofline, "_measure", lambda device: replace(found, copy_gb_s=found.copy_gb_s / 2))
        assert peaks("cpu", file, again=True).copy_gb_s == 2 * found.copy_gb_s
    assert "another device" in json.loads(file.read_text())
    assert [f.name for f in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"a": 3}', '{"KEY": {"copy_gb_s": 0, "fp32_tflops": 1}}', '{"KEY": {"copy_gb_s": null}}']
)
def test_a_corrupt_file_is_measured_again(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "peaks.json"
    file.write_text(text.replace("KEY", roofline._key("cpu")))
    monkeypatch.setattr(roofline, "_measure", lambda device: H200)
    assert peaks("cpu", file) == H200
    assert list(json.loads(file.read_text())) == [roofline._key("cpu")]


def test_faster_than_the_memory_is_implausible() -> None:
    byte_ms = 1000 / 4300
    light, check = judged(0.9 * byte_ms)
    assert check is not None
    assert not check.passed
    assert check.refutes is Status.IMPLAUSIBLE
    assert check.figure == 0.9 * byte_ms
    assert check.bound == pytest.approx(0.95 * byte_ms)
    assert light.fraction == pytest.approx(1 / 0.9)


def test_as_fast_as_the_memory_is_fine() -> None:
    light, check = judged(1000 / 4300)
    assert check is not None
    assert check.passed
    assert light.fraction == pytest.approx(1.0)
    assert light.quarantines


@pytest.mark.parametrize("why", ["warm", "in the cache"])
def test_where_a_cache_may_have_helped_nothing_is_refused(why: str) -> None:
    light, check = judged(1e-6, cold=False) if why == "warm" else judged(1e-6, nbytes=4 * L2)
    assert check is None
    assert not light.quarantines


def test_beating_the_flop_bound_is_a_label_and_no_refusal() -> None:
    flops = 2 * 4096**3
    honest_ms = flops / (790 / 6) / 1e9
    light, check = judged(0.8 * honest_ms, flops=flops)
    assert light.label == "algebraic?"
    assert light.flop_ms == pytest.approx(honest_ms)
    assert check is not None
    assert check.passed
    assert judged(1.1 * honest_ms, flops=flops)[0].label == ""


def test_the_honest_rate_follows_the_contract() -> None:
    assert honest_tflops(H200, Precision.STRICT, torch.float32) == pytest.approx(790 / 6)
    assert honest_tflops(H200, Precision.TF32, torch.float32) == pytest.approx(362)
    assert honest_tflops(H200, Precision.TASK, torch.float32) == pytest.approx(790)
    assert honest_tflops(H200, Precision.STRICT, torch.bfloat16) == pytest.approx(790)
    assert honest_tflops(H200, Precision.STRICT, torch.float64) is None
    assert honest_tflops(Peaks(20.0, 0.1, None, None), Precision.TF32, torch.float32) == 0.1


@given(st.floats(1e-3, 1e3), st.integers(1, 10**12), st.integers(0, 10**15), st.booleans())
def test_only_the_byte_bound_refuses(ms: float, nbytes: int, flops: int, cold: bool) -> None:
    light, check = judged(ms, nbytes=nbytes, flops=flops, cold=cold)
    assert (check is not None) == (cold and nbytes > 4 * L2)
    if check is not None:
        assert check.passed == (ms >= 0.95 * light.byte_ms)  # type: ignore[attr-defined]
    assert light.fraction * ms == pytest.approx(max(light.byte_ms, light.flop_ms or 0.0))


@pytest.mark.gpu
def test_a_gpu_has_peaks_and_a_copy_does_not_beat_them(tmp_path: Path) -> None:
    file = tmp_path / "peaks.json"
    found = peaks("cuda", file)
    assert found == peaks("cuda", file)
    assert found.tf32_tflops is not None
    assert found.bf16_tflops is not None
    assert found.fp32_tflops < found.tf32_tflops < found.bf16_tflops
    source = torch.ones(2**28, device="cuda")
    target = torch.empty_like(source)
    took_s = roofline._best_s("cuda", lambda: target.copy_(source))
    light, check = judge(took_s * 1e3, 2 * source.nbytes, 0, found, Precision.STRICT, L2, True)
    assert check is not None
    assert check.passed
    assert 0.5 < light.fraction < 1.05
