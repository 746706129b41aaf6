"""The build phase: what it needs, how long it may take, and what need not be compiled anew for every candidate."""

from pathlib import Path

import pytest
import torch

from kernelwright.stages.execute import building
from kernelwright.stages.sandbox.pool import Zygote
from kernelwright.stages.types import Backend, Candidate
from tests.stages.execute.softmax_jobs import job


@pytest.mark.parametrize(
    ("source", "backend", "wanted"),
    [
        ("class ModelNew: ...", Backend.TORCH, False),
        ("class ModelNew: ...", Backend.TRITON, True),
        ("from torch.utils.cpp_extension import load_inline", Backend.TORCH, True),
        (
            "def forward(x):\n    try:\n        return x\n    except RuntimeError:\n        return x + 0",
            Backend.TORCH,
            True,
        ),
    ],
)
def test_a_process_is_thrown_away_only_where_there_is_something_to_see(
    source: str, backend: Backend, *, wanted: bool
) -> None:
    assert building.needed(Candidate(source, backend, "test")) is wanted


def test_extensions_get_the_time_that_torchs_headers_take() -> None:
    plain = job("right")
    assert building.timeout_s(plain) == plain.effort.timeout_s


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_there_is_no_driver_library_and_nothing_fails(zygote: Zygote, tmp_path: Path) -> None:
    assert building.triton_driver(zygote, tmp_path / "driver") is None


@pytest.mark.gpu
def test_tritons_driver_library_is_compiled_once(zygote: Zygote, tmp_path: Path) -> None:
    folder = building.triton_driver(zygote, tmp_path / "driver")
    assert folder is not None
    (library,) = folder.rglob("cuda_utils*.so")
    when = library.stat().st_mtime_ns
    assert building.triton_driver(zygote, tmp_path / "driver") == folder
    assert library.stat().st_mtime_ns == when
