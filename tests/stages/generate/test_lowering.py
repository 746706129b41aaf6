"""Every operator that is lowered, against torch, through the C++ back end: ordinary, huge, tiny, special values."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from kernelwright.stages.generate.lowering import POINTWISE, ROWWISE, base
from kernelwright.stages.generate.prepare import prepare
from kernelwright.stages.translate import translate
from tests.stages.generate.candidates import pair, problem, template

ARITHMETIC = """
x + y; x - y; x * y; x / y; x + 2; 2 - x; 1 / x; torch.add(x, y, alpha=3); torch.sub(x, y, alpha=0.5)
torch.rsub(x, y, alpha=0.5); torch.true_divide(x, 3); torch.div(x, y, rounding_mode="trunc"); -x; x.abs(); x.sign()
x.reciprocal(); x.sqrt(); x.rsqrt(); x.exp(); x.exp2(); x.expm1(); x.log(); x.log2(); x.log10(); x.log1p()
x.sin(); x.cos(); x.tanh(); x.erf(); x.sigmoid(); x.floor(); x.ceil(); x.trunc(); x.round(); x.square()
x**2; x**3; x**4; x**0.5; x**-0.5; x**-1; x**0; x**1.7; x**y; 2**x; torch.maximum(x, y); torch.minimum(x, y)
x.clamp(-1, 1); x.clamp(min=0.25); x.clamp(max=0.25); x.clip(-3, 3); torch.clamp(x, y, z); x.clamp_min(0.5)
x.clamp_max(0.5); torch.lerp(x, y, 0.3); torch.lerp(x, y, 0.8); torch.lerp(x, y, z); torch.addcmul(x, y, z)
torch.addcmul(x, y, z, value=0.5); torch.addcdiv(x, y, z, value=2); torch.where(x > 0, x, y); torch.where(x > 0, x, 1.0)
x.masked_fill(y > 0, 3); x.masked_fill(y > 0, float("-inf"))
"""
IN_PLACE = """
x.clone().mul_(y).add_(1); (x + 1).relu_(); F.leaky_relu_(x * y)
"""
TESTS = """
x == y; x != y; x < y; x <= y; x > y; x >= y; x > 0.5; x < 1; (x > 0) & (y > 0); (x > 0) | (y > 0)
torch.bitwise_and(x > 0, y > 0); torch.bitwise_or(x > 0, y > 0); torch.bitwise_xor(x > 0, y > 0); (x > 0) ^ (y > 0)
torch.logical_and(x, y); torch.logical_or(x, y); torch.logical_xor(x, y); torch.logical_not(x); ~(x > 0)
x.isnan(); x.isinf(); x.isfinite(); x.bool()
"""
ACTIVATIONS = """
F.relu(x); F.relu6(x); F.hardtanh(x, -2, 3); F.leaky_relu(x, 0.2); F.elu(x, 1.3); F.selu(x); F.celu(x, 1.5); F.gelu(x)
F.gelu(x, approximate="tanh"); F.silu(x); F.softplus(x); F.softplus(x, 2, 10); F.mish(x); F.hardsigmoid(x)
F.hardswish(x); F.logsigmoid(x); F.softsign(x); F.tanhshrink(x); F.hardshrink(x); F.softshrink(x)
F.threshold(x, 0.5, 2); F.dropout(x, 0.5, False)
"""
INTEGERS = """
x + y; x - y; x * y; x / y; x + 2; 2 - x; x * 0.5; x + z; torch.add(x, y, alpha=3); -x; x.abs(); x.sign(); x.sqrt()
x.exp(); x.sigmoid(); x.floor(); x.round(); x == y; x < y; x > 0.5; x >= 1; x == z; x**2; x**3; x**4
torch.maximum(x, y); F.relu(x); x.clamp(-1, 1); x.clamp(min=0.5); torch.where(x > 0, x, y); torch.where(x > 0, x, z)
x.masked_fill(y > 0, 3); torch.addcmul(x, y, x); torch.bitwise_and(x, y); torch.bitwise_not(x); torch.logical_and(x, y)
torch.logical_not(x); x.isnan(); x.isinf(); x.isfinite(); x.float(); x.bool(); x.int(); x.double() + 1
x.type_as(z) * 2; (x > 0) + 1; (x > 0) * z; (x > 0) + (y > 0); (x > 0) == (y > 0); (x > 0) < (y > 0); (x > 0) > 0
x.int() + y; x.int() * 3; x * 1000000007 * 1000000007; z.int(); z.long() + x
torch.ops.aten._to_copy(z, dtype=torch.float64) + x; x.T.contiguous().T + 1; x.T.clone().T + 1
torch.div(x, y.abs() + 1, rounding_mode="floor"); torch.div(x, y.abs() + 1, rounding_mode="trunc")
"""
ROWS = """
x.sum(-1); x.sum(1, keepdim=True); x.sum(-1, dtype=torch.float64); x.mean(-1); x.prod(-1); x.amax(-1); x.amin(-1)
x.argmax(-1); x.argmin(-1); x.argmax(1, keepdim=True); x.max(-1)[0]; x.max(-1)[1]; x.min(-1, keepdim=True)[0]
x.aminmax(dim=-1)[0]; (x > 0).any(-1); (x < 9).all(-1); torch.count_nonzero(x > 0, -1); x.norm(dim=-1)
x.norm(p=1, dim=-1); x.norm(p=3, dim=-1); x.norm(p=float("inf"), dim=-1); torch.linalg.norm(x, dim=-1)
F.normalize(x, dim=-1); torch.linalg.vector_norm(x, 0, dim=-1)
torch.softmax(x, -1); F.log_softmax(x, -1); torch.logsumexp(x, -1)
torch.ops.aten._softmax(x, -1, False); torch.ops.aten._log_softmax(x, -1, False); (x > 0).sum(-1)
F.rms_norm(x, (50,)); F.rms_norm(x, (50,), self.weight, 1e-5); F.softmin(x, -1)
"""
MOMENTS = """
x.var(-1); x.var(-1, correction=0); x.var(-1, unbiased=False); x.std(-1, keepdim=True); torch.var_mean(x, dim=-1)[0]
torch.std_mean(x, dim=-1, keepdim=True)[1]; torch.var_mean(x, dim=-1, correction=0)[1]; F.layer_norm(x, (50,))
F.layer_norm(x, (50,), self.weight, self.bias); x - x.mean(-1, keepdim=True); (x.sum(-1) * 2).view(-1, 1) + x
"""
WHOLE_ROWS = """
x.sum(-1); x.prod(-1); x.amax(-1); x.amin(-1); x.argmax(-1); x.argmin(-1); x.max(-1)[0]; (x > 0).sum(-1); x.any(-1)
x.sum(-1, dtype=torch.float32); x.int().sum(-1); x.int().argmax(-1); (x > 0).amax(-1); (x > 0).prod(-1); (x > 7).all(-1)
torch.count_nonzero(x, -1); x.float().mean(-1)
"""


def listed(*texts: str) -> list[str]:
    """The expressions, one a semicolon or a line."""
    return [part for text in texts for line in text.strip().splitlines() for part in line.split("; ")]


@dataclass(frozen=True)
class Group:
    """Expressions that one candidate computes, and what it is called with."""

    expressions: list[str]
    inputs: list[str]
    values: list[torch.Tensor]


def special_values() -> list[torch.Tensor]:
    """Every pair of special values in x and y, some third in z; then ordinary values. Each (40, 50)."""
    special = torch.tensor(
        [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, torch.inf, -torch.inf, torch.nan, 1e-40, 1e30, -1e30, 88.5, -101.0, 20.5]
    )
    generator = torch.Generator().manual_seed(0)
    ordinary = torch.randn(3, 2000 - len(special) ** 2, generator=generator)
    ordinary *= torch.tensor([0.1, 1.0, 4.0, 30.0])[torch.arange(ordinary.shape[1]) % 4]
    turned = special.roll(5)
    pairs = torch.stack([special.repeat_interleave(16), special.repeat(16), turned.repeat_interleave(16)])
    return [row.reshape(40, 50) for row in torch.cat([pairs, ordinary], 1)]


def integers() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randint(-9, 9, (40, 50), generator=generator) for _ in range(2))
    return [x, y, torch.randn(40, 50, generator=generator) * 5]


def rows() -> torch.Tensor:
    return torch.randn(48, 50, generator=torch.Generator().manual_seed(2)) * 3 + 1


def special_rows() -> torch.Tensor:
    """Rows with one nan, two, infinities of either sign, ties, and values near the ends of the range."""
    x = rows()
    x[0, 3] = x[1, 49] = x[1, 5] = torch.nan
    x[2, 7] = x[3, 2] = torch.inf
    x[3, 3] = x[4, 1] = -torch.inf
    x[5], x[6], x[7] = torch.inf, -torch.inf, 0.0
    x[8], x[9] = 7.0, -x[9].abs()
    x[10] *= 1e18
    x[11] = 1e-42
    return x


FLOAT_INPUTS = ["torch.randn(40, 50)"] * 3
GROUPS = {
    "float32": Group(listed(ARITHMETIC, TESTS, ACTIVATIONS), FLOAT_INPUTS, special_values()),
    "in place": Group(listed(IN_PLACE), FLOAT_INPUTS, special_values()),
    "float64": Group(
        listed(ARITHMETIC, TESTS, ACTIVATIONS),
        ["torch.randn(40, 50, dtype=torch.float64)"] * 3,
        [v.double() for v in special_values()],
    ),
    "integers": Group(listed(INTEGERS), ["torch.randint(-9, 9, (40, 50))"] * 2 + ["torch.randn(40, 50)"], integers()),
    "rows": Group(listed(ROWS, MOMENTS), ["torch.randn(48, 50)"], [rows()]),
    # torch computes moments in float64, or by updates that lose an infinity: another answer where float32 overflows.
    "special rows": Group(listed(ROWS), ["torch.randn(48, 50)"], [special_rows()]),
    "rows of integers": Group(listed(WHOLE_ROWS), ["torch.randint(-9, 9, (48, 50))"], [torch.randint(-9, 9, (48, 50))]),
}
CASES = [(name, expression) for name, group in GROUPS.items() for expression in group.expressions]


@dataclass(frozen=True)
class Answers:
    """Of one expression: the candidate's, eager's, and eager's in float64."""

    found: torch.Tensor
    eager: torch.Tensor
    exact: torch.Tensor


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("build")
        patch.setenv("KERNELWRIGHT_BUILD", str(folder))
        yield folder


@pytest.fixture(scope="module")
def answers(build_folder: Path) -> dict[tuple[str, str], Answers]:
    found: dict[tuple[str, str], Answers] = {}
    for name, group in GROUPS.items():
        made = template(problem(group.expressions, group.inputs))
        reference, candidate = pair(made.render(made.default))
        with torch.no_grad():
            ours, eager = candidate(*group.values), reference(*group.values)
            wide = [v.double() if v.is_floating_point() else v for v in group.values]
            exact = reference.double()(*wide)
        for each in zip(group.expressions, ours, eager, exact, strict=True):
            found[name, each[0]] = Answers(*each[1:])
    return found


@pytest.mark.parametrize(("group", "expression"), CASES)
def test_an_operator_gives_what_torch_gives(
    group: str, expression: str, answers: dict[tuple[str, str], Answers]
) -> None:
    found, eager, exact = (getattr(answers[group, expression], f) for f in ("found", "eager", "exact"))
    assert found.dtype == eager.dtype
    assert found.shape == eager.shape
    if not eager.is_floating_point():
        assert torch.equal(found, eager)
        return
    # On some processors torch's own vectorised gelu gives nan for an infinity, where its float64 form does not.
    agreed = eager.isnan() == exact.isnan()
    assert torch.equal(found.isnan()[agreed], eager.isnan()[agreed])
    assert torch.equal(found[eager.isinf()], eager[eager.isinf()])
    finite = eager.isfinite() & exact.isfinite()
    error, own = ((v.double() - exact).abs()[finite] for v in (found, eager))
    # A few units of the last place, of 1 too: a sum that cancels is as exact as its parts.
    units = 8 * torch.finfo(eager.dtype).eps * exact.abs()[finite].clamp_min(1.0)
    if group.endswith("rows"):
        units *= 4
    assert bool((error <= torch.maximum(4 * own, units)).all())


def test_every_rule_is_tried() -> None:
    tried = {
        base(node.op)
        for group in GROUPS.values()
        for node in prepare(translate(problem(group.expressions, group.inputs)).graph).nodes
    }
    assert sorted((POINTWISE.keys() | ROWWISE.keys()) - tried) == []


LIBRARY_ONLY = {
    'torch.div(x, y, rounding_mode="floor")': "aten.div.Tensor_mode",
    "torch.round(x, decimals=2)": "aten.round.decimals",
    "torch.bitwise_and(x.long(), y.long())": "aten.bitwise_and.Tensor",
    "x.long() ** 5": "aten.pow.Tensor_Scalar",
    "x.sum(0)": "aten.sum.dim_IntList",
    "x.max(0)[0]": "aten.max.dim",
}


@pytest.mark.parametrize("expression", LIBRARY_ONLY)
def test_what_a_rule_would_get_wrong_or_slow_stays_with_the_library(expression: str) -> None:
    made = template(problem([f"torch.exp(y), {expression}"], FLOAT_INPUTS))
    assert LIBRARY_ONLY[expression] in made.library_ops
