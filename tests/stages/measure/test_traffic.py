"""What a reference must read, write and compute at least, found by probing it."""

import inspect
import textwrap
from collections.abc import Callable

import pytest
import torch
from torch import nn

from kernelwright.stages.measure.traffic import Traffic, flops, stored_bytes, traffic
from kernelwright.stages.sandbox import tree
from kernelwright.stages.verify.cases import Case

CACHE = 16
"""A tiny cache: everything here is more than it holds, so that all probes are made."""


def case_of(model: nn.Module, *arguments: object) -> Case:
    tensors: list[torch.Tensor] = []
    structure = tree.flatten(list(arguments), tensors)
    return Case(structure, tuple(tensors), {k: v.detach().clone() for k, v in model.state_dict().items()})


def found(function: Callable[..., object], *arguments: object) -> Traffic:
    """The traffic of a function, as a module."""

    class Reference(nn.Module):
        def forward(self, *tensors: torch.Tensor) -> object:
            return function(*tensors)

    model = Reference()
    return traffic(model, case_of(model, *arguments), CACHE)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


X = normal(64, 64)
NBYTES = 64 * 64 * 4


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.relu(),
        lambda x: torch.softmax(x, -1),
        lambda x: x.cumsum(0),
        lambda x: x.clamp(-0.5, 0.5),
        lambda x: x.half().float(),
        lambda x: x.sort(-1).values,
        lambda x: x / x.square().mean(-1, keepdim=True).sqrt(),
    ],
    ids=lambda f: textwrap.shorten(inspect.getsource(f).split(":", 1)[1], 40),
)
def test_what_every_answer_needs_is_read_whole(function: Callable[..., object]) -> None:
    assert found(function, X) == Traffic({"argument 0": NBYTES}, NBYTES)


def test_reductions_read_everything_and_write_little() -> None:
    assert found(lambda x: x.mean(), X) == Traffic({"argument 0": NBYTES}, 4)
    assert found(lambda x: x.argmax(-1), X) == Traffic({"argument 0": NBYTES}, 64 * 8)
    assert found(lambda x: x.min(-1).values, X) == Traffic({"argument 0": NBYTES}, 64 * 4)


def test_what_is_read_in_part_counts_nothing() -> None:
    rows = torch.arange(4)
    assert found(lambda x: 2 * x[:, :32], X).read == {}
    assert found(lambda x: 2 * x.tril(), X).read == {}
    assert found(lambda table, index: 2 * table[index], X, rows).read == {}


def test_an_embedding_table_of_which_a_few_rows_are_looked_up_counts_nothing() -> None:
    model = nn.Embedding(1000, 16)
    index = torch.arange(0, 40)
    assert (
        traffic(model, case_of(model, index), CACHE) == Traffic({}, 0)
        or "weight" not in traffic(model, case_of(model, index), CACHE).read
    )


def test_what_does_not_change_the_answer_counts_nothing() -> None:
    assert found(lambda x, y: x + 0 * y.nan_to_num(), X, X.clone()) == Traffic({"argument 0": NBYTES}, NBYTES)
    # A softmax over one element is 1, whatever it is of.
    assert found(lambda x: torch.softmax(x.reshape(-1, 1), -1), X) == Traffic({}, 0)


def test_the_first_query_of_causal_attention_does_not_matter_and_the_others_do() -> None:
    q, k, v = normal(1, 4, 64, 8), normal(1, 4, 64, 8) + 0.1, normal(1, 4, 64, 8) - 0.1
    seen = found(lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    assert set(seen.read) == {"argument 0", "argument 1", "argument 2"}
    assert 0.85 * q.nbytes < seen.read["argument 0"] <= q.nbytes


def test_parameters_count_like_arguments_and_small_ones_not_at_all() -> None:
    model = nn.Linear(64, 64)
    seen = traffic(model, case_of(model, normal(4096, 64)), CACHE)
    assert seen.read == {"argument 0": 4096 * 64 * 4}
    seen = traffic(model, case_of(model, normal(32, 64)), CACHE)
    assert seen.read == {"argument 0": 32 * 64 * 4, "weight": 64 * 64 * 4}
    assert seen.bytes_least == seen.written + 32 * 64 * 4 + 64 * 64 * 4


def test_views_are_not_written_and_in_place_results_are() -> None:
    assert found(lambda x: x.t(), X).written == 0
    assert found(lambda x: x.relu_(), X) == Traffic({"argument 0": NBYTES}, NBYTES)
    # A broadcast result is stored once.
    assert found(lambda x: x.sum(0, keepdim=True).expand(64, 64), X).written == 64 * 4
    assert found(lambda x: (x.abs(),) * 2, X).written == NBYTES
    assert found(lambda x: (x.abs(), x.abs()), X).written == 2 * NBYTES


def test_inputs_that_are_one_tensor_count_once() -> None:
    assert found(lambda x, y: x + y, X, X).read == {"argument 0": NBYTES}


def test_repeated_elements_are_stored_once() -> None:
    assert stored_bytes(torch.ones(8, 1).expand(8, 100)) == 32
    assert found(lambda x, y: x + y, X, normal(64, 1).expand(64, 64)).read == {"argument 0": NBYTES}


def test_masks_and_indices_are_probed_within_their_range() -> None:
    mask = normal(64, 64) > 0
    assert found(lambda x, m: x.abs().masked_fill(m, -1.0), X, mask).read["argument 1"] == 64 * 64
    index = torch.randint(0, 64, (64, 64))
    assert found(lambda x, i: torch.gather(x, 1, i), X, index).read["argument 1"] == 64 * 64 * 8


def test_not_a_number_equals_itself() -> None:
    assert found(lambda x, y: torch.stack([x, torch.full_like(y, torch.nan)]), X, X.clone()).read == {
        "argument 0": NBYTES
    }


def test_random_draws_are_no_effect() -> None:
    assert found(lambda x, y: x + torch.rand_like(y), X, X.clone()).read == {"argument 0": NBYTES}


def test_the_state_is_left_as_the_case_gives_it() -> None:
    model = nn.BatchNorm2d(4)
    case = case_of(model, normal(8, 4, 16, 16))
    seen = traffic(model, case, CACHE)
    assert seen == Traffic({"argument 0": 8 * 4 * 256 * 4}, 8 * 4 * 256 * 4)
    assert all(torch.equal(value, case.state[name]) for name, value in model.state_dict().items())
    assert torch.equal(case.tensors[0], normal(8, 4, 16, 16))


def test_without_time_nothing_is_claimed() -> None:
    model = nn.ReLU()
    assert traffic(model, case_of(model, X), CACHE, budget_s=0.0).read == {}


def test_matrix_products_count_two_operations_a_multiply_add() -> None:
    model = nn.Linear(64, 32, bias=False)
    assert flops(model, case_of(model, normal(16, 64))) == 2 * 16 * 64 * 32
    relu = nn.ReLU()
    assert flops(relu, case_of(relu, X)) == 0


def test_attention_is_counted_as_its_two_products() -> None:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(q, q, q)

    assert flops(Attention(), case_of(Attention(), normal(1, 2, 16, 8))) == 2 * (2 * 2 * 16 * 16 * 8)


def test_a_reference_that_looks_at_values_is_counted_on_real_ones() -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ x if x.sum().item() > -1e9 else x

    assert flops(Branches(), case_of(Branches(), X)) == 2 * 64**3
