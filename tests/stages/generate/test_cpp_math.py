"""The C++ functions against torch in float64, over all exponents, by units in the last place of float32."""

import ctypes
import subprocess
from collections.abc import Callable

import pytest
import torch

from kernelwright.stages.generate.cpp import PRELUDE
from kernelwright.stages.generate.cpp_launch import FLAGS
from kernelwright.stages.generate.cpp_math import FUNCTIONS, definitions

REFERENCES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "exp": (torch.exp, 1.1),
    "expm1": (torch.expm1, 2.0),
    "log": (torch.log, 1.0),
    "log1p": (torch.log1p, 1.6),
    "tanh": (torch.tanh, 1.6),
    "sigmoid": (torch.sigmoid, 2.6),
    "erf": (torch.erf, 7.0),
}
"""Each function's reference, and how many units in the last place it may be off."""
TINY = torch.finfo(torch.float32).tiny
SPECIAL = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 88.8, -104.5, 1e-45, -1e-45, -1.0, 1.0])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loops = "\n".join(
        f'extern "C" void run_{name}(int64_t n, const float* x, float* y) {{\n'
        f"    #pragma omp simd\n    for (int64_t i = 0; i < n; ++i) y[i] = {name}_(x[i]);\n}}"
        for name in REFERENCES
    )
    path = tmp_path_factory.mktemp("math") / "math.so"
    source = "\n".join([PRELUDE, definitions(loops), loops])
    subprocess.run(["g++", "-shared", "-fPIC", *FLAGS, "-x", "c++", "-", "-o", path], input=source.encode(), check=True)
    return ctypes.CDLL(str(path))


def applied(library: ctypes.CDLL, name: str, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    pointers = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()))
    getattr(library, f"run_{name}")(ctypes.c_int64(x.numel()), *pointers)
    return y


def every_so_many_floats(step: int) -> torch.Tensor:
    """Every `step`-th float32 in the order of their bits: all exponents, both signs, the denormals, nan."""
    return torch.arange(-(2**31), 2**31, step).to(torch.int32).view(torch.float32)


def test_every_function_of_its_own_is_tested() -> None:
    assert REFERENCES.keys() == FUNCTIONS.keys() - {"select"}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_function_is_right_to_a_few_units_in_the_last_place(library: ctypes.CDLL, name: str) -> None:
    function, bound = REFERENCES[name]
    x = torch.cat([every_so_many_floats(3001), torch.randn(200_000) * 3])
    y, exact = applied(library, name, x), function(x.double())
    rounded = exact.float()
    assert torch.equal(y.isnan(), rounded.isnan())
    assert torch.equal(y.isinf(), rounded.isinf())
    finite = rounded.isfinite()
    unit = torch.nextafter(rounded.abs(), torch.tensor(torch.inf)) - rounded.abs()
    # Where the answer is no normal number, zero will do.
    unit[exact.abs() < TINY] = TINY
    error = ((y.double() - exact).abs() / unit)[finite]
    assert float(error.max()) <= bound


@pytest.mark.parametrize("name", REFERENCES)
def test_a_function_keeps_nan_infinities_and_the_sign_of_zero(library: ctypes.CDLL, name: str) -> None:
    y, wanted = applied(library, name, SPECIAL), REFERENCES[name][0](SPECIAL)
    torch.testing.assert_close(y, wanted, rtol=1e-6, atol=1e-38, equal_nan=True)
    assert torch.equal(y[:2].signbit(), wanted[:2].signbit())


def test_only_the_functions_in_use_are_written_each_after_those_it_calls() -> None:
    text = definitions("y = tanh_(x);")
    assert text.index("from_bits(int32_t") < text.index("float exp_(") < text.index("float tanh_(")
    assert "log_(" not in text
