"""What is fused with what: kernels and library calls of small models, and the order in which they run."""

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.sources import suite
from kernelwright.stages.generate.ir import Domain, FusedKernel, LibraryCall, Plan, Reduce
from kernelwright.stages.generate.plan import plan
from kernelwright.stages.generate.prepare import prepare
from kernelwright.stages.translate import translate
from kernelwright.stages.translate.graph import InputKind
from tests.stages.generate.candidates import problem

SQUARE = "torch.randn(48, 48)"
IMAGE = "torch.randn(4, 20, 6, 5)"
CORE = {each.name: each for each in suite("core")}


def planned(of: Problem) -> Plan:
    return plan(translate(of).graph)


def steps(*expressions: str, inputs: str = SQUARE, count: int = 2) -> list[str]:
    """The plan in words: a kernel by its name, a library call by its operator."""
    made = planned(problem(expressions, [inputs] * count, width=48))
    return [s.name if isinstance(s, FusedKernel) else s.node.op.split(".")[1] for s in made.steps]


ONE_KERNEL = {
    "rms norm by hand": "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight",
    "log-sum-exp by hand": "(x - x.amax(-1, keepdim=True)).exp().sum(-1).log() + x.amax(-1)",
    "norm, activation, residual": "F.gelu(F.layer_norm(x, (48,), self.weight, self.bias)) + x",
    "work before and after a reduction": "torch.relu((torch.tanh(x) * y).sum(-1)) * 2",
    "two reductions of one row": "x.amax(-1) - x.mean(-1)",
    "values and positions": "x.max(-1)[0] * x.max(-1)[1]",
    "a norm's view of its rows": "F.normalize(x, dim=-1)",
    "rows stretched by hand": "x - x.mean(-1).view(-1, 1)",
    "rows stretched by their last dimension": "x - x.mean(-1, keepdim=True).expand(48, 48)",
    "in place": "(x * 2).relu_().add_(y)",
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_rows_and_the_points_about_them_make_one_kernel(name: str) -> None:
    assert len(steps(ONE_KERNEL[name])) == 1


def test_channels_and_columns_are_broadcast_operands() -> None:
    scaled = planned(problem(["x * y[:, :, :1, :1] + self.weight[:5]"], [IMAGE] * 2))
    (kernel,) = scaled.kernels
    strides = {load.source: load.strides for load in kernel.loads}
    assert strides["x"] == (600, 30, 5, 1)
    assert strides["slice_2"] == (600, 30, 0, 0)
    assert strides["slice_3"] == (0, 0, 0, 1)


def test_one_value_a_row_is_computed_once_a_row() -> None:
    (kernel,) = planned(problem(["x / (x.sum(-1, keepdim=True) + 1)"], [SQUARE])).kernels
    domains = {line.name: Domain.ROW if isinstance(line, Reduce) else line.domain for line in kernel.body}
    assert domains == {"row_sum": Domain.ROW, "add": Domain.ROW, "div": Domain.FULL}


def test_a_linear_layer_gives_its_bias_to_what_follows_it() -> None:
    made = planned(CORE["mlp_block"])
    words = [s.name if isinstance(s, FusedKernel) else s.node.op for s in made.steps]
    assert words == ["fused_layer_norm", "aten.linear.default", "fused_add_gelu", "aten.linear.default", "fused_add"]
    assert all(len(s.node.args) == 2 for s in made.steps if isinstance(s, LibraryCall))


def test_a_linear_layer_that_nothing_follows_keeps_its_bias() -> None:
    assert steps("F.linear(x, y, self.bias)") == ["linear"]


APART = {
    # The columns' sums need all rows; what follows them starts anew.
    "(torch.exp(x) - torch.exp(x).sum(0)).relu()": ["fused_exp", "sum", "fused_sub_relu"],
    # A second row reduction over other dimensions than the first.
    "torch.softmax(x.view(16, 3, 48), -1).sum((1, 2))": ["view", "fused_softmax", "fused_sum"],
    # cumsum reads what the kernel writes, and the kernel's other users wait for it.
    "(x * y).cumsum(-1) * (x * y)": ["fused_mul", "cumsum", "fused_mul_2"],
    # Stretched along the rows instead of the columns: one value a column.
    "x + x.sum(-1).expand(48, 48)": ["fused_sum", "expand", "fused_add"],
    # One parameter read in two ways: along the row by x, one value a row by the sums.
    "(x * self.bias).sum(-1) * self.bias": ["fused_mul_sum", "fused_mul"],
    # A copy alone is the library's.
    "x.T.contiguous()": ["permute", "contiguous"],
}


@pytest.mark.parametrize("expression", APART)
def test_what_does_not_fit_runs_apart_in_an_order_that_works(expression: str) -> None:
    assert steps(expression) == APART[expression]


def test_few_long_rows_are_left_to_the_library() -> None:
    assert steps("x.sum(-1)", inputs="torch.randn(4, 4096)", count=1) == ["sum"]


def test_an_operator_between_two_halves_of_a_kernel_splits_it() -> None:
    # `relu` reads both the kernel's tanh and, through cumsum, its own group: it must not join the first kernel.
    assert steps("torch.relu(torch.tanh(x) + torch.tanh(x).cumsum(0))") == ["fused_tanh", "cumsum", "fused_add_relu"]


def test_a_kernel_reads_another_kernels_result_as_row_major_whatever_its_strides_in_eager() -> None:
    of = problem(["(x * 2).cumsum(0) + (x * 2)"], ["torch.randn(48, 48).T"])
    first, second = planned(of).kernels
    assert first.loads[0].strides == (1, 48)
    assert first.stores[0].spec.contiguous
    assert {load.strides for load in second.loads} == {(48, 1)}


@pytest.mark.parametrize("name", CORE)
def test_every_node_is_in_one_step_and_every_value_is_there_before_it_is_read(name: str) -> None:
    graph = prepare(translate(CORE[name]).graph)
    made = plan(graph)
    assert made == plan(graph)
    there = {i.name for i in graph.inputs}
    covered: list[str] = []
    for step in made.steps:
        if isinstance(step, FusedKernel):
            assert {load.source for load in step.loads} <= there
            there |= {store.target for store in step.stores}
            covered += step.covers
        else:
            assert set(step.node.refs()) <= there
            there.add(step.node.name)
            covered.append(step.node.name)
    assert sorted(covered) == sorted(node.name for node in graph.nodes)
    arguments = {i.name for i in graph.inputs if i.kind is InputKind.ARGUMENT}
    assert arguments <= there
