"""A module written out as a problem: its source runs alone, and computes the same with the module's own state."""

import copy
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from kernelwright.kernelbench.contract import check, instantiate, load
from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.translate import translate
from kernelwright.stages.translate.capture import capture
from kernelwright.stages.translate.from_module import copy_state, problem_from_module
from kernelwright.stages.translate.signature import signature
from tests.stages.translate import modules
from tests.stages.translate.modules import CASES

WRITTEN = [name for name, case in CASES.items() if case.form != "other"]


@pytest.mark.parametrize("name", WRITTEN)
@torch.no_grad()
def test_it_computes_the_same_with_the_same_state(name: str) -> None:
    module, inputs = CASES[name].make(), CASES[name].inputs()
    problem = problem_from_module(module, inputs, name)
    written = load(problem).model_class()
    written.load_state_dict({k: v for k, v in module.state_dict().items() if k in written.state_dict()}, strict=True)
    copied = load(problem).model_class()
    copy_state(module, copied)

    expected = pytree.tree_leaves(copy.deepcopy(module)(*copy.deepcopy(inputs)))
    for twin in (written, copied):
        found = pytree.tree_leaves(twin(*copy.deepcopy(inputs)))
        for e, f in zip(expected, found, strict=True):
            torch.testing.assert_close(f, e, rtol=0, atol=0)


@pytest.mark.parametrize("name", WRITTEN)
def test_it_is_a_problem_like_any_other(name: str) -> None:
    module, inputs = CASES[name].make(), CASES[name].inputs()
    problem = problem_from_module(module, inputs, name)
    check(problem, "cpu")
    assert translate(problem).signature == signature(capture(module, inputs)[0])
    _, drawn = instantiate(load(problem), "cpu", seed=1)
    for given, new in zip(inputs, drawn, strict=True):
        if isinstance(given, torch.Tensor):
            assert (new.shape, new.dtype, new.stride()) == (given.shape, given.dtype, given.stride())
            if not given.is_floating_point():
                assert given.min() <= new.min()
                assert new.max() <= given.max()
        else:
            assert new == given


@pytest.mark.parametrize("name", WRITTEN)
def test_the_source_is_formatted(name: str) -> None:
    ruff = shutil.which("ruff", path=str(sys.executable).rsplit("/", 1)[0]) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    source = problem_from_module(CASES[name].make(), CASES[name].inputs(), name).source
    command = [ruff, "format", "--isolated", "--line-length=100", "-"]
    assert subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout == source


def test_it_reads_as_a_person_would_write_it() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.RMSNorm(8)

        def forward(self, x: torch.Tensor, labels: torch.Tensor, factor: float) -> torch.Tensor:
            return self.norm(x)[labels] * factor

    module = Scale()
    problem = problem_from_module(module, [torch.zeros(4, 8), torch.tensor([3, 0, 2]), 0.5], "scale")
    assert (
        problem.source
        == '''\
"""Scale, written out from its captured graph: the same operators on the same state."""

import torch
from torch import nn

aten = torch.ops.aten


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(1.0 + 0.1 * torch.randn(8))

    def forward(self, x, labels, factor):
        rms_norm = aten.rms_norm(x, [8], self.norm.weight)
        index = aten.index.Tensor(rms_norm, [labels])
        mul = aten.mul.Tensor(index, 0.5)
        return mul


def get_inputs():
    return [0.0 * torch.rand(4, 8), torch.randint(0, 4, (3,)), 0.5]


def get_init_inputs():
    return []
'''
    )


def test_masks_and_tables_are_written_exactly() -> None:
    module = modules.WithBuffers()
    model = load(problem_from_module(module, [torch.randn(9, 9)], "buffers")).model_class()
    buffers = dict(model.named_buffers())
    assert torch.equal(buffers["mask"], module.mask)
    assert torch.equal(buffers["table"], module.table)
    assert torch.equal(buffers["scale"], module.scale)
    assert set(model.state_dict()) == {"mask"}


def test_a_running_variance_stays_positive() -> None:
    problem = problem_from_module(modules.ConvBlock().eval(), [torch.randn(2, 3, 8, 8)], "conv")
    for seed in range(5):
        model, inputs = instantiate(load(problem), "cpu", seed)
        assert model.get_buffer("norm.running_var").min() > 0
        assert model(*inputs).isfinite().all()


def test_another_return_form_is_refused() -> None:
    with pytest.raises(UsageError, match=r"DictOutput: forward returns a dict or nested values"):
        problem_from_module(modules.DictOutput(), [torch.randn(3, 6)], "dict")


def test_state_of_another_module_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Linear has no tensor 0\.weight"):
        copy_state(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
