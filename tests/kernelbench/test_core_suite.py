"""Every problem of `core`, and every example: it loads, runs, can be scaled, and everything that goes in counts."""

import copy
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from kernelwright.kernelbench.contract import Contract, check, draw_inputs, instantiate, load
from kernelwright.kernelbench.sources import from_spec, suite

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
SPECS = [p.origin for p in suite("core")] + [str(p) for p in EXAMPLES]

everywhere = pytest.mark.parametrize("spec", SPECS, ids=[s if s.startswith("core/") else Path(s).stem for s in SPECS])


def tiny(spec: str) -> Contract:
    return load(from_spec(spec, shape="tiny"))


@torch.no_grad()
def run(model: torch.nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    output = model(*inputs)
    assert isinstance(output, torch.Tensor)
    return output


def test_the_suite_is_large_enough() -> None:
    assert len(suite("core")) >= 16


@everywhere
def test_it_passes_the_check(spec: str) -> None:
    check(from_spec(spec, shape="tiny"), "cpu")


@everywhere
def test_tiny_is_small_enough_for_an_interpreter(spec: str) -> None:
    _, inputs = instantiate(tiny(spec), "cpu", 0)
    assert sum(x.numel() for x in inputs) <= 10_000


@everywhere
def test_it_passes_the_check_at_gpu_size(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.kernelbench.contract.FAKE_ABOVE_ELEMENTS", 0)
    check(from_spec(spec, shape="gpu"), "cpu")


@everywhere
def test_at_gpu_size_it_is_worth_a_gpu(spec: str) -> None:
    """At least 100 MB pass through memory, or it takes 2 GFLOP: as long, at 20 operations a byte."""
    contract = load(from_spec(spec, shape="gpu"))
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:
        model, inputs = instantiate(contract, "cpu", 0)
        output = run(model, inputs)
    moved = sum(t.nbytes for t in [*inputs, *model.parameters(), output])
    assert moved >= 100e6 or counter.get_total_flops() >= 2e9


@everywhere
def test_the_docstring_gives_the_formula_and_the_shapes(spec: str) -> None:
    module_doc = from_spec(spec).source.split('"""')[1]
    assert "=" in module_doc
    assert ": (" in module_doc


@everywhere
def test_the_hash_tells_shapes_apart(spec: str) -> None:
    hashes = {from_spec(spec, shape=shape).hash for shape in (None, "tiny", "gpu")}
    assert len(hashes) == 3


@everywhere
def test_the_output_is_finite_and_follows_the_seed(spec: str) -> None:
    contract = tiny(spec)
    first, again, other = (run(*instantiate(contract, "cpu", seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.double().isfinite().all()


@everywhere
def test_the_output_depends_on_every_input(spec: str) -> None:
    contract = tiny(spec)
    model, inputs = instantiate(contract, "cpu", 0)
    before = run(model, inputs)
    for index, fresh in enumerate(draw_inputs(contract, "cpu", 1)):
        changed = [*inputs[:index], fresh, *inputs[index + 1 :]]
        assert not torch.equal(run(model, changed), before), f"input {index} has no influence"


@everywhere
def test_the_output_depends_on_every_parameter_and_buffer(spec: str) -> None:
    contract = tiny(spec)
    model, inputs = instantiate(contract, "cpu", 0)
    before = run(model, inputs)
    state = {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
    for name, value in state.items():
        assert not torch.equal(value, torch.ones_like(value)), f"{name} is 1: a missing multiplication would not show"
        assert not torch.equal(value, torch.zeros_like(value)), f"{name} is 0: a missing addition would not show"
        changed = copy.deepcopy(model)
        changed.load_state_dict({name: value * 1.5 + 0.1}, strict=False)
        assert not torch.equal(run(changed, inputs), before), f"{name} has no influence"
