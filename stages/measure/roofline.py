"""The speed of light: what the device can do at most, and what that says about a candidate's time.

Williams, Waterman and Patterson, Roofline, CACM 52 (2009). Only the byte bound may refuse: no kernel gets data faster
than the memory gives it, while another algorithm may well need fewer operations.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.measure import devices
from kernelwright.stages.types import Check, SpeedOfLight, Status

QUARANTINE = 0.95
"""A candidate that is faster than this share of the byte bound did not do its work."""
CACHE_TIMES = 4
"""The byte bound refuses only where the traffic is more than so many last-level caches."""
ALGEBRAIC = "algebraic?"
TF32_PRODUCTS = 3
"""TF32 products of high and low parts that give back float32's accuracy (Ootomo and Yokota, IJHPCA 2022)."""
BF16_PRODUCTS = 6
"""bfloat16 products of three parts that do (Henry, Tang and Heinecke, ARITH 2019)."""
LEAST_BUFFER, MOST_BUFFER = 64 * 2**20, 2**30
REPEATS = 12


@dataclass(frozen=True)
class Peaks:
    """The best rates that were measured on one device. None: the device has no such unit, or nobody measured it."""

    copy_gb_s: float
    """10^9 bytes, read and written, a second: the fastest of copying, reading, writing and updating in place."""
    fp32_tflops: float
    """10^12 operations a second of a square matrix product; a multiply-add is two."""
    tf32_tflops: float | None
    bf16_tflops: float | None


def default_cache() -> Path:
    """Where peaks are kept for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelwright" / "peaks.json"


def peaks(device: str, cache_file: Path, *, again: bool = False) -> Peaks:
    """The device's peaks, measured once a device and versions and kept in `cache_file` (JSON).

    `again` measures once more and keeps the larger figures: on a machine with neighbours the first measurement may have
    been slow, and nothing should be refused for that. The device must be idle meanwhile (seconds).
    """
    known = _read(cache_file)
    key = _key(device)
    if key in known and not again:
        return known[key]
    found = _measure(device)
    if key in known:
        found = _larger(found, known[key])
    # Read again: another device's figures may have come in meanwhile.
    _write(cache_file, _read(cache_file) | {key: found})
    return found


def honest_tflops(peaks: Peaks, precision: Precision, dtype: torch.dtype) -> float | None:
    """The best rate at which a matrix product of `dtype` can keep the precision contract. None: unknown."""
    if dtype in (torch.bfloat16, torch.float16):
        return peaks.bf16_tflops
    if dtype != torch.float32:
        return None
    tf32, bf16 = peaks.tf32_tflops or 0.0, peaks.bf16_tflops or 0.0
    if precision is Precision.STRICT:
        return max(peaks.fp32_tflops, tf32 / TF32_PRODUCTS, bf16 / BF16_PRODUCTS)
    if precision is Precision.TF32:
        # Two bfloat16 parts hold more digits than TF32: three products.
        return max(peaks.fp32_tflops, tf32, bf16 / 3)
    return max(peaks.fp32_tflops, tf32, bf16)


def judge(
    candidate_ms: float,
    bytes_least: int,
    flops: int,
    peaks: Peaks,
    precision: Precision,
    cache_bytes: int,
    cold: bool,
    *,
    dtype: torch.dtype = torch.float32,
) -> tuple[SpeedOfLight, Check | None]:
    """What the device's limits say about a time. The check is None where the byte bound may not refuse.

    `candidate_ms` is the median of cold calls; `bytes_least` is `traffic.least_bytes`, `flops` `traffic.flops`; `dtype`
    that of the matrix products. A failed check is IMPLAUSIBLE; before acting on it, measure the peaks `again`.
    """
    byte_ms = bytes_least / peaks.copy_gb_s / 1e6
    rate = honest_tflops(peaks, precision, dtype)
    flop_ms = None if rate is None else flops / rate / 1e9
    quarantines = cold and bytes_least > CACHE_TIMES * cache_bytes
    light = SpeedOfLight(
        bytes_least=bytes_least,
        flops=flops,
        byte_ms=byte_ms,
        flop_ms=flop_ms,
        fraction=max(byte_ms, flop_ms or 0.0) / candidate_ms,
        quarantines=quarantines,
        label=ALGEBRAIC if flop_ms is not None and candidate_ms < flop_ms else "",
    )
    if not quarantines:
        return light, None
    bound = QUARANTINE * byte_ms
    detail = (
        f"{candidate_ms:.4g} ms for at least {bytes_least / 1e6:.4g} MB, which this device moves in {byte_ms:.4g} ms "
        f"at its {peaks.copy_gb_s:.4g} GB/s"
    )
    return light, Check(
        "speed of light", candidate_ms >= bound, candidate_ms, bound, detail, refutes=Status.IMPLAUSIBLE
    )


def _measure(device: str) -> Peaks:
    with torch.no_grad():
        copy_gb_s = _memory_gb_s(device)
        torch_default = torch.backends.cuda.matmul.allow_tf32
        try:
            torch.backends.cuda.matmul.allow_tf32 = False
            fp32 = _product_tflops(device, torch.float32)
            if device == "cpu":
                return Peaks(copy_gb_s, fp32, None, None)
            torch.backends.cuda.matmul.allow_tf32 = True
            tf32 = _product_tflops(device, torch.float32)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = torch_default
        return Peaks(copy_gb_s, fp32, tf32, _product_tflops(device, torch.bfloat16))


def _memory_gb_s(device: str) -> float:
    """The fastest of four ways to move data that does not fit into the cache.

    A copy alone would be too low: a CPU reads each line of the target before it writes it, and DRAM loses time when it
    turns from reading to writing, so a kernel that mostly reads is faster than any copy.
    """
    nbytes = min(max(4 * devices.last_level_cache_bytes(device), LEAST_BUFFER), MOST_BUFFER)
    source = torch.ones(nbytes // 4, device=device)
    target = torch.empty_like(source)
    ways: tuple[tuple[int, Callable[[], object]], ...] = (
        (2 * nbytes, lambda: target.copy_(source)),
        (nbytes, lambda: target.fill_(1.0)),
        (nbytes, lambda: source.sum()),
        (2 * nbytes, lambda: target.add_(1.0)),
    )
    return max(moved / _best_s(device, way) for moved, way in ways) / 1e9


def _product_tflops(device: str, dtype: torch.dtype) -> float:
    n = 1024 if device == "cpu" else 8192
    a, b = torch.randn(n, n, device=device).to(dtype), torch.randn(n, n, device=device).to(dtype)
    out = torch.empty(n, n, dtype=dtype, device=device)
    return float(2.0 * n**3 / _best_s(device, lambda: torch.mm(a, b, out=out)) / 1e12)


def _best_s(device: str, call: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls, after a warm-up."""
    call()
    return min(_timed(device, call) for _ in range(REPEATS))


def _timed(device: str, call: Callable[[], object]) -> float:
    if device == "cpu":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    call()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3


def _key(device: str) -> str:
    where = devices.environment(device)
    threads = where.threads if device == "cpu" else ""
    return f"{devices.identity(device)} {where.device_name} {where.driver} torch {where.torch} {threads}".strip()


def _larger(a: Peaks, b: Peaks) -> Peaks:
    return Peaks(
        max(a.copy_gb_s, b.copy_gb_s),
        max(a.fp32_tflops, b.fp32_tflops),
        None if a.tf32_tflops is None or b.tf32_tflops is None else max(a.tf32_tflops, b.tf32_tflops),
        None if a.bf16_tflops is None or b.bf16_tflops is None else max(a.bf16_tflops, b.bf16_tflops),
    )


def _read(file: Path) -> dict[str, Peaks]:
    """What is cached; nothing when the file is absent or was not written by this version of us."""
    try:
        return {str(key): Peaks(**values) for key, values in json.loads(file.read_text()).items() if _sound(values)}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _sound(values: dict[str, float | None]) -> bool:
    """Whether the figures can be what somebody measured."""
    numbers = [v for v in values.values() if v is not None]
    return all(0.0 < float(v) < float("inf") for v in numbers) and values["copy_gb_s"] is not None


def _write(file: Path, known: dict[str, Peaks]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(file) as temporary:
        temporary.write_text(json.dumps({key: asdict(value) for key, value in known.items()}, indent=1) + "\n")


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """A file beside `file` that takes its place whole."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
