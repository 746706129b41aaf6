"""The C++ back end: its functions against float64, every choice of a template against the reference, and the guards."""

import ctypes
import importlib.util
import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate import templates_for
from kernelwright.stages.generate.cpp import FLAGS, PRELUDE
from kernelwright.stages.generate.cpp_math import FUNCTIONS, definitions
from kernelwright.stages.generate.template import Template
from kernelwright.stages.translate import translate

REFERENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
}
ULPS = 8
"""Units in the last place that a function may be off; each states its method in `cpp_math`."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loops = "\n".join(
        f'extern "C" void run_{name}(int64_t n, const float* x, float* y) {{\n'
        f"#pragma omp simd\nfor (int64_t i = 0; i < n; ++i) y[i] = {name}_(x[i]);\n}}"
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


def test_every_function_of_its_own_is_tested() -> None:
    assert REFERENCES.keys() == FUNCTIONS.keys() - {"select"}


@pytest.mark.parametrize("name", REFERENCES)
def test_functions_are_right_to_a_few_units_in_the_last_place(library: ctypes.CDLL, name: str) -> None:
    torch.manual_seed(1)
    magnitudes = 10 ** torch.empty(200_000).uniform_(-30, 2)
    x = torch.cat([torch.randn(200_000) * 3, magnitudes, -magnitudes])
    exact = REFERENCES[name](x.double())
    y = applied(library, name, x)
    tiny = torch.finfo(torch.float32).tiny
    # One unit in the last place of the float32 nearest to the exact value; below the normal numbers, zero will do.
    unit = torch.exp2(exact.abs().clamp_min(tiny).log2().floor() - 23)
    unit[exact.abs() < tiny] = tiny
    finite = exact.isfinite() & (exact.abs() <= torch.finfo(torch.float32).max)
    error = ((y.double() - exact).abs() / unit)[finite]
    assert float(error.max()) <= ULPS
    assert torch.equal(y.isnan(), exact.isnan())


@pytest.mark.parametrize("name", REFERENCES)
def test_functions_treat_the_special_values_as_torch_does(library: ctypes.CDLL, name: str) -> None:
    x = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e38, -1e38, 1e-40, -1.0, 1.0])
    y, wanted = applied(library, name, x), REFERENCES[name](x)
    torch.testing.assert_close(y, wanted, rtol=1e-6, atol=1e-38, equal_nan=True)


MODULES = {
    "softmax": "return torch.softmax(x, dim=-1)",
    "layer norm with an epilogue": "return F.gelu(F.layer_norm(x, (COLS,), self.weight, self.bias)) + x",
    "rms norm by hand": "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight",
    "log softmax": "return F.log_softmax(x * 2, dim=-1)",
    "argmax and maximum": "return x.argmax(-1), x.amax(-1)",
    "a chain": "return torch.tanh(x) * torch.sigmoid(x * self.weight) - torch.where(x > 0, x, torch.exp(x))",
    "rows of two dimensions": "return F.layer_norm(x.view(-1, 8, COLS // 8), (8, COLS // 8)).flatten(1)",
    "a column for each row": "return x / (x.abs().sum(-1, keepdim=True) + self.bias[:1])",
    "an integer result": "return (x > self.weight).to(torch.int64) * 3",
}


def problem(body: str, columns: int) -> Problem:
    source = f"""
import torch
import torch.nn as nn
import torch.nn.functional as F

COLS = {columns}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(COLS) + 0.5)
        self.bias = nn.Parameter(torch.randn(COLS))

    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(24, COLS)]


def get_init_inputs():
    return []
"""
    return Problem("module", source, "module.py")


def template(of: Problem) -> Template:
    (found,) = templates_for(of, translate(of), "cpu")
    return found


def loaded(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("KERNELWRIGHT_BUILD", str(folder))
    path = folder / "candidate.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flat(value: torch.Tensor | tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("columns", [1000, 1024])
def test_the_first_and_the_last_choice_agree_with_float64(
    name: str, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = problem(MODULES[name], columns)
    choices = template(of).space
    for choice in ({k: v[0] for k, v in choices.items()}, {k: v[-1] for k, v in choices.items()}):
        module = loaded(template(of).render(choice), tmp_path, monkeypatch)
        torch.manual_seed(4)
        ours, reference = module.ModelNew(), module.Model()
        ours.load_state_dict(reference.state_dict())
        x = torch.randn(24, columns)
        with torch.no_grad():
            got, wanted = flat(ours(x)), flat(reference.double()(x.double()))
        for a, b in zip(got, wanted, strict=True):
            torch.testing.assert_close(a.double(), b.double(), rtol=2e-5, atol=2e-6)


@pytest.mark.slow
def test_every_choice_of_a_small_softmax_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = problem(MODULES["softmax"], 96)
    made = template(of)
    x = torch.randn(24, 96)
    for values in itertools.product(*made.space.values()):
        module = loaded(made.render(dict(zip(made.space, values, strict=True))), tmp_path, monkeypatch)
        with torch.no_grad():
            torch.testing.assert_close(module.ModelNew()(x), torch.softmax(x, -1), rtol=1e-5, atol=1e-7)


def test_a_nan_in_a_row_stays_in_that_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = problem(MODULES["argmax and maximum"], 1000)
    module = loaded(template(of).render(template(of).default), tmp_path, monkeypatch)
    x = torch.randn(24, 1000)
    x[3, 77] = float("nan")
    x[5] = 2.0
    with torch.no_grad():
        index, value = module.ModelNew()(x)
    assert torch.equal(index, x.argmax(-1))
    torch.testing.assert_close(value, x.amax(-1), equal_nan=True, rtol=0, atol=0)


def test_what_the_kernels_were_not_written_for_runs_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = problem(MODULES["rms norm by hand"], 1024)
    module = loaded(template(of).render(template(of).default), tmp_path, monkeypatch)
    ours = module.ModelNew()
    for x in (
        torch.randn(7, 1024),  # another leading size is the kernels' own
        torch.randn(1024, 24).t(),  # not contiguous
        torch.randn(24, 1024).double(),
        torch.randn(2, 3, 1024),
        torch.randn(0, 1024),
    ):
        with torch.no_grad():
            got, wanted = ours(x), module.Model.forward(ours, x)
        assert got.dtype == wanted.dtype
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    trained = torch.randn(24, 1024, requires_grad=True)
    ours(trained).sum().backward()
    assert trained.grad is not None
    assert ours.weight.grad is not None


def test_the_same_choice_gives_the_same_file_and_strict_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = problem(MODULES["layer norm with an epilogue"], 1024)
    first, second = (template(of).render(template(of).default) for _ in range(2))
    assert first == second
    module = loaded(first, tmp_path, monkeypatch)
    assert module.ModelNew().state_dict().keys() == module.Model().state_dict().keys()
    torch.manual_seed(9)
    wanted = module.Model().weight
    torch.manual_seed(9)
    assert torch.equal(module.ModelNew().weight, wanted)
