"""The series of cases: each planted mistake is found by the probe that is there for it, and honest variants pass."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.stages.verify import memory_needs, transforms
from kernelwright.stages.verify.cases import same_form
from kernelwright.stages.verify.domains import Kind, domain
from tests.stages.verify.tasks import Candidate, failed, planned, task

NORM = "(x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)"
ATTENTION = "torch.softmax(x @ y.transpose(-1, -2) + z, -1) @ y"
MATRICES = "torch.randn(24, 96)", "torch.randn(96, 40) / 8"
ROWS = "torch.randn(16, 200)"


def one_pass_norm(x: torch.Tensor, state: object) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5)


def two_pass_norm(x: torch.Tensor, state: object) -> torch.Tensor:
    shifted = x - x.sum(-1, keepdim=True) * (1 / x.shape[-1])
    return shifted * torch.rsqrt(shifted.square().mean(-1, keepdim=True) + 1e-5)


def half_accumulated(x: torch.Tensor, y: torch.Tensor, state: object) -> torch.Tensor:
    total = torch.zeros(x.shape[0], y.shape[1], dtype=torch.float16)
    for k in range(0, x.shape[1], 16):
        total += (x[:, k : k + 16] @ y[k : k + 16]).half()
    return total.float()


def cut(x: torch.Tensor) -> torch.Tensor:
    """Rounded to TF32's ten bits of mantissa, as cvt.rna does."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def three_tf32_products(x: torch.Tensor, y: torch.Tensor, state: object) -> torch.Tensor:
    high_x, high_y = cut(x), cut(y)
    low_x, low_y = cut(x - high_x), cut(y - high_y)
    return low_x @ high_y + high_x @ low_y + high_x @ high_y


def truncated_exp(x: torch.Tensor) -> torch.Tensor:
    return torch.exp2(x * 1.4427)


WRONG: dict[str, tuple[tuple[str, ...], Candidate, str]] = {
    "variance in one pass": ((NORM, ROWS), one_pass_norm, "offset by 1000"),
    "tanh for erf": (("F.gelu(x)", ROWS), lambda x, state: F.gelu(x, approximate="tanh"), "random 2"),
    "softmax without its maximum": (
        ("torch.softmax(x, -1)", ROWS),
        lambda x, state: x.exp() / x.exp().sum(-1, keepdim=True),
        "1e+12 times as large",
    ),
    "exp by a short constant": (("torch.exp(x)", ROWS), lambda x, state: truncated_exp(x), "random 2"),
    "zeros for tiny outputs": (
        ("torch.softmax(x, -1)", "torch.randn(4, 65536)"),
        lambda x, state: torch.zeros_like(x),
        "random 2",
    ),
    "mean of an eighth": (
        ("x.mean(1)", "torch.rand(8, 65536)"),
        lambda x, state: x[:, : x.shape[1] // 8].mean(1),
        "random 2",
    ),
    "maximum without the last element": (
        ("x.amax(-1)", "torch.randn(2, 4000)"),
        lambda x, state: x[:, :-1].amax(-1),
        "sorted rows",
    ),
    "copy for a norm": (
        ("F.layer_norm(x, (512, 512))", "torch.randn(2, 512, 512)"),
        lambda x, state: x.clone(),
        "eight times as large",
    ),
    "mask ignored": (
        (ATTENTION, "torch.randn(2, 16, 8)", "torch.randn(2, 16, 8)", "torch.zeros(16, 16)"),
        lambda x, y, z, state: torch.softmax(x @ y.transpose(-1, -2), -1) @ y,
        "argument 3 alone changed",
    ),
    "boolean mask taken as true": (
        ("torch.where(y, x, 0.0)", "torch.randn(8, 40)", "torch.ones(8, 40, dtype=torch.bool)"),
        lambda x, y, state: x.clone(),
        "argument 2 alone changed",
    ),
    "one TF32 product": (("x @ y", *MATRICES), lambda x, y, state: cut(x) @ cut(y), "random 2"),
    "sums in float16": (("x @ y", *MATRICES), half_accumulated, "random 2"),
    "operands in bfloat16": (
        ("x @ y", *MATRICES),
        lambda x, y, state: (x.bfloat16() @ y.bfloat16()).float(),
        "random 2",
    ),
    "right for a range only": (
        ("torch.tanh(x)", ROWS),
        lambda x, state: torch.tanh(x.clamp(-4.5, 4.5)),
        "eight times as large",
    ),
    "nothing but contiguous": (
        ("x * 2", "torch.randn(8, 40)"),
        lambda x, state: torch.as_strided(x, x.shape, (x.shape[1], 1)) * 2,
        "non-contiguous inputs",
    ),
    "nan for a huge value": (
        ("F.softplus(x)", ROWS),
        lambda x, state: torch.log(1 + torch.exp(x)),
        "one huge value in argument 1",
    ),
    "nan spreads": (
        ("x * 2 + 1", ROWS),
        lambda x, state: x * 2 + 1 + 0 * x.sum(),
        "inf and nan",
    ),
}
HONEST: dict[str, tuple[tuple[str, ...], Candidate]] = {
    "variance in two passes": ((NORM, ROWS), two_pass_norm),
    "three TF32 products": (("x @ y", *MATRICES), three_tf32_products),
    "exp by the hardware's base 2": (
        ("torch.softmax(x, -1)", ROWS),
        lambda x, state: (lambda e: e / e.sum(-1, keepdim=True))(
            torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)
        ),
    ),
    "growing exponential in base 2": (("torch.exp(x)", ROWS), lambda x, state: torch.exp2(x * 1.4426950408889634)),
    "a running sum": (
        ("x.sum(-1)", "torch.rand(4, 16384)"),
        lambda x, state: x.double().cumsum(-1)[..., -1].float() if not x.isfinite().all() else _running(x),
    ),
    "scan in blocks": (("x.cumsum(-1)", "torch.rand(16, 1024) - 0.5"), lambda x, state: _blocked_scan(x)),
    "a maximum that drops nan": (
        ("torch.relu(x * y + x)", ROWS, ROWS),
        lambda x, y, state: torch.fmax(x * y + x, torch.zeros(())),
    ),
    "denormals flushed": (("x * 0.5", ROWS), lambda x, state: torch.where((x * 0.5).abs() < 1.2e-38, 0.0, x * 0.5)),
    "split infinities": (("x @ y", *MATRICES), three_tf32_products),
    "bfloat16 where the reference has it": (
        ("(x.bfloat16() @ y.bfloat16()).float()", *MATRICES),
        lambda x, y, state: x.bfloat16().float() @ y.bfloat16().float(),
    ),
    "other tie": (("x.argmax(-1)", "torch.randn(16, 30)"), lambda x, state: x.shape[1] - 1 - x.flip(-1).argmax(-1)),
}


def _running(x: torch.Tensor) -> torch.Tensor:
    """Eight lanes, each a plain running sum."""
    total = torch.zeros(x.shape[0], 8)
    for piece in x.reshape(x.shape[0], -1, 8).unbind(1):
        total += piece
    return total.sum(-1)


def _blocked_scan(x: torch.Tensor) -> torch.Tensor:
    blocks = x.reshape(x.shape[0], -1, 64).cumsum(-1)
    carry = blocks[..., -1].cumsum(-1).roll(1, -1)
    carry[:, 0] = 0
    return (blocks + carry[..., None]).view(x.shape)


@pytest.mark.parametrize("fault", WRONG)
def test_a_mistake_is_found_by_the_probe_for_it(fault: str) -> None:
    (result, *inputs), candidate, label = WRONG[fault]
    assert label in failed(planned(task(result, *inputs)), candidate)


@pytest.mark.parametrize("variant", HONEST)
def test_an_honest_variant_passes_every_case(variant: str) -> None:
    (result, *inputs), candidate = HONEST[variant]
    for seed in (1, 2):
        assert failed(planned(task(result, *inputs), seed), candidate) == []


def test_every_parameter_and_statistic_is_changed_on_its_own() -> None:
    of = task("self.norm(x)", "torch.randn(32, 6)", init="self.norm = nn.BatchNorm1d(6).eval()")
    series = planned(of)
    changed = {case.label for case in series.cases if "alone" in case.label}
    names = ("parameter norm.weight", "parameter norm.bias", "buffer norm.running_mean", "buffer norm.running_var")
    assert changed == {f"{name} alone changed" for name in names}

    def forgets_the_statistics(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
        return x / (1 + 1e-5) ** 0.5 * state["norm.weight"] + state["norm.bias"]

    wrong = failed(series, forgets_the_statistics)
    assert sorted(wrong) == ["buffer norm.running_mean alone changed", "buffer norm.running_var alone changed"]


def test_a_mask_of_whole_numbers_is_no_statistic() -> None:
    mask = "self.register_buffer('mask', torch.tril(torch.ones(8, 8)))"
    series = planned(task("x.masked_fill(self.mask == 0, 0.0)", "torch.randn(3, 8, 8)", init=mask))
    assert not any("buffer" in case.label for case in series.cases)


def test_tied_parameters_change_together() -> None:
    init = "self.a = nn.Linear(8, 8); self.b = nn.Linear(8, 8); self.b.weight = self.a.weight"
    series = planned(task("self.b(self.a(x))", "torch.randn(4, 8)", init=init))
    assert all(torch.equal(c.state["a.weight"], c.state["b.weight"]) for c in series.cases)


def test_indices_stay_in_range() -> None:
    of = task("F.embedding(y, x)", "torch.randn(10, 4)", "torch.randint(10, (50,))")
    for case in planned(of).cases:
        assert 0 <= int(case.tensors[1].min()) <= int(case.tensors[1].max()) < 10


def test_a_range_is_left_only_where_the_reference_allows_it() -> None:
    accepts = planned(task("x.mean(1)", "torch.rand(8, 100)"))
    assert max(float(c.tensors[0].max()) for c in accepts.cases if not c.specials) > 900
    # log is nan for negative values, and binary_cross_entropy raises outside of [0, 1].
    for result in ("torch.log(x + 1e-3).mean(1)", "F.binary_cross_entropy(x, x.round(), reduction='none')"):
        series = planned(task(result, "torch.rand(8, 100)"))
        assert all(e.eager[0].isfinite().all() for c, e in series.pairs if not c.specials)


def test_what_tells_nothing_is_dropped_with_the_reason() -> None:
    series = planned(task("torch.sin(x)", "torch.randn(8, 40)"))
    assert not any("e+12" in case.label for case in series.cases)
    series = planned(task("x.sum()", "torch.randn(8, 40)"))
    assert any(d.startswith("inf and nan: nothing finite") for d in series.dropped)


def test_everything_follows_from_the_seed() -> None:
    of = task("x @ y", *MATRICES)
    first, again, other = planned(of, 5), planned(of, 5), planned(of, 6)
    assert [c.label for c in first.cases] == [c.label for c in again.cases]
    for a, b in zip(first.cases, again.cases, strict=True):
        assert all(torch.equal(x, y) or a.specials for x, y in zip(a.tensors, b.tensors, strict=True))
    assert [c.label for c in first.cases] != [c.label for c in other.cases]


def test_a_follower_comes_right_after_its_case_and_fits_its_buffers() -> None:
    for seed in range(5):
        cases = planned(task("x @ y", *MATRICES), seed).cases
        followers = [i for i, c in enumerate(cases) if c.follows is not None]
        assert followers
        for i in followers:
            assert cases[i].follows == i - 1
            assert same_form(cases[i], cases[i - 1])
            assert cases[i].state is cases[i - 1].state


def test_cases_of_one_layout_share_buffers() -> None:
    series = planned(task("x @ y", *MATRICES))
    by_layout = {c.layout: c for c in series.cases}
    assert set(by_layout) == {"", "non-contiguous", "sliced"}
    assert all(same_form(c, by_layout[c.layout]) for c in series.cases)
    assert by_layout["sliced"].tensors[0].storage_offset() == 1


def test_inputs_that_vary_in_shape_have_layouts_of_their_own() -> None:
    rows = "torch.randn(int(torch.randint(5, 50, ())), 8)"
    series = planned(task("x * 2", rows))
    shapes: dict[str, set[torch.Size]] = {}
    for case in series.cases:
        shapes.setdefault(case.layout, set()).add(case.tensors[0].shape)
    assert len(shapes) > 3
    assert all(len(found) == 1 for found in shapes.values())


def test_another_declared_shape_is_tried_where_the_same_module_takes_it() -> None:
    sizes = 'ROWS = 40\nSHAPES = {"tiny": {"ROWS": 7}}'
    free = planned(task("x * 2", "torch.randn(ROWS, 8)", constants=sizes))
    assert [c.tensors[0].shape[0] for c in free.cases if c.layout == "shape tiny"] == [7]
    bound = planned(task("x.view(ROWS, 8) * ROWS", "torch.randn(ROWS, 8)", constants=sizes))
    assert not any("shape" in c.layout for c in bound.cases)


def test_where_memory_is_short_two_random_cases_are_left_and_the_rest_is_named() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_needs, "memory", lambda device: (10**5, 10**5))
        series = planned(task("x @ y", *MATRICES))
    assert sorted(c.label for c in series.cases) == ["random 1", "random 2"]
    assert sum("no memory" in d for d in series.dropped) > 10


def test_the_short_series_is_short() -> None:
    of = task("x @ y", *MATRICES)
    assert len(planned(of, thorough=False).cases) < len(planned(of).cases) <= 24


@given(st.integers(0, 10**6), st.lists(st.integers(1, 9), min_size=1, max_size=4))
@settings(max_examples=40)
def test_an_inner_exchange_keeps_corners_sum_and_sum_of_squares(seed: int, shape: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    swapped = transforms.swap_inside(x, generator)
    if swapped is None:
        assert x.numel() < 8 or all(n < 3 for n in shape) or min(shape) < 9
        return
    flat, other = x.reshape(-1), swapped.reshape(-1)
    assert torch.equal(flat[[0, -1]], other[[0, -1]])
    assert int((x != swapped).sum()) == 2
    assert torch.equal(flat.sort().values, other.sort().values)
    torch.testing.assert_close(swapped.sum(), x.sum(), rtol=1e-6, atol=1e-6)


def test_an_inner_exchange_mostly_keeps_the_sums_to_the_last_bit() -> None:
    kept = 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(64, 64, generator=generator)
        swapped = transforms.swap_inside(x, generator)
        assert swapped is not None
        kept += bool(swapped.sum() == x.sum()) and bool((swapped * swapped).sum() == (x * x).sum())
    assert kept >= 18


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (torch.randn(100), Kind.ANY),
        (torch.rand(100), Kind.UNIT),
        (torch.rand(100) * 5, Kind.POSITIVE),
        (torch.softmax(torch.randn(10, 10), -1), Kind.PROBABILITY),
        (torch.randint(5, (100,)).float(), Kind.WHOLE),
        (torch.randint(5, (100,)), Kind.WHOLE),
        (torch.ones(10, 10).tril().log(), Kind.WHOLE),
        (torch.zeros(100), Kind.FIXED),
    ],
)
def test_a_range_is_read_off_the_values(values: torch.Tensor, kind: Kind) -> None:
    assert domain([values, values]).kind is kind
