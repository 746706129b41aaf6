"""What a module's graph looks like, and what cannot be one."""

import json
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.codec import to_json
from kernelwright.stages.translate.capture import capture
from kernelwright.stages.translate.graph import Dtype, Graph, InputKind, Ref, TensorSpec
from tests.stages.translate import modules
from tests.stages.translate.modules import CASES


def graph_of(model: nn.Module, *inputs: Any) -> Graph:
    return capture(model, inputs)[0]


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_composite_operators_stay_whole() -> None:
    graph = graph_of(modules.Norms(), torch.randn(5, 24))
    assert operators(graph) == ["aten.rms_norm.default", "aten.layer_norm.default", "aten.softmax.int"]
    assert [(i.kind, i.target, i.index) for i in graph.inputs] == [
        (InputKind.PARAMETER, "rms.weight", -1),
        (InputKind.PARAMETER, "layer.weight", -1),
        (InputKind.PARAMETER, "layer.bias", -1),
        (InputKind.ARGUMENT, "", 0),
    ]
    first = graph.nodes[0]
    assert first.args == (Ref("x"), (24,), Ref("p_rms_weight"))
    assert first.output == TensorSpec((5, 24), "float32", (24, 1))


@pytest.mark.parametrize("name", CASES)
def test_a_graph_is_plain_data(name: str) -> None:
    graph, captured_by = capture(CASES[name].make(), CASES[name].inputs())
    assert captured_by == "export"
    assert graph.output_form == CASES[name].form
    assert not any(op.split(".")[1].endswith("_") for op in operators(graph) if op != "getitem"), "all is functional"
    json.dumps(to_json(graph))
    hash(graph)


@pytest.mark.parametrize("name", CASES)
def test_fake_tensors_give_the_same_graph(name: str) -> None:
    case = CASES[name]
    with FakeTensorMode(allow_non_fake_inputs=True):
        on_fakes = capture(case.make(), case.inputs())
    assert on_fakes == capture(case.make(), case.inputs())


def test_training_batch_norm_lists_what_it_writes() -> None:
    graph = graph_of(modules.ConvBlock(), torch.randn(2, 3, 8, 8))
    assert sorted(path for _, path in graph.mutated) == [
        "norm.num_batches_tracked",
        "norm.running_mean",
        "norm.running_var",
    ]
    assert "aten.conv2d.default" in operators(graph)


def test_evaluating_batch_norm_stays_whole_beside_an_in_place_operator() -> None:
    assert "aten.batch_norm.default" in operators(graph_of(modules.ConvBlock().eval(), torch.randn(2, 3, 8, 8)))


def test_written_arguments_are_listed_by_name() -> None:
    graph = graph_of(modules.Counts(), torch.randn(3, 4))
    assert sorted(path for _, path in graph.mutated) == ["total", "x"]


def test_capturing_leaves_the_model_as_it_was() -> None:
    model, x = modules.Counts(), torch.ones(3, 4)
    capture(model, [x])
    assert torch.equal(model.total, torch.zeros(4))
    assert torch.equal(x, torch.ones(3, 4))
    assert set(vars(model)) == set(vars(modules.Counts()))


def test_no_ops_are_left_out() -> None:
    class Idle(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = nn.functional.dropout(x, 0.5, training=False).contiguous().view(4, 6)[:].to(torch.float32)
            return x.expand(4, 6).reshape(4, 6) + 1

    assert operators(graph_of(Idle(), torch.randn(4, 6))) == ["aten.add.Tensor"]


def test_transposes_have_one_spelling() -> None:
    class Transposes(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.T @ y.mT

    graph = graph_of(Transposes(), torch.randn(4, 6), torch.randn(2, 5, 4))
    assert [n.args[1:] for n in graph.nodes[:2]] == [((1, 0),), (-2, -1)]


def test_a_copy_that_is_returned_stays() -> None:
    class Copy(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.clone(), (x * 2).clone() + 1

    graph = graph_of(Copy(), torch.randn(4))
    assert operators(graph) == ["aten.clone.default", "aten.mul.Tensor", "aten.add.Tensor"]


def test_a_real_change_of_dtype_or_layout_stays() -> None:
    class Change(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.t().contiguous().to(torch.float64)

    graph = graph_of(Change(), torch.randn(4, 4))
    assert operators(graph) == ["aten.t.default", "aten.contiguous.default", "aten.to.dtype"]
    assert graph.nodes[-1].args[1] == Dtype("float64")


def test_numbers_become_operators() -> None:
    graph = graph_of(modules.InPlace(), torch.randn(3, 4))
    literals = [n.args[0] for n in graph.nodes if n.op == "aten.scalar_tensor.default"]
    assert literals == [5.0, 6.0, 7.0]


def test_several_results_are_picked_by_index() -> None:
    graph = graph_of(modules.SeveralOutputs(), torch.randn(3, 6))
    maximum, *picks = graph.nodes
    assert maximum.output == (TensorSpec((3,), "float32", (1,)), TensorSpec((3,), "int64", (1,)))
    assert [p.args for p in picks] == [(Ref(maximum.name), 0), (Ref(maximum.name), 1)]
    assert graph.outputs == (Ref(picks[0].name), Ref(picks[1].name), None, 3)


def test_arguments_keep_their_positions() -> None:
    graph = graph_of(modules.PlainArguments(), *CASES["plain arguments"].inputs())
    assert [(i.name, i.index) for i in graph.inputs] == [("x", 0), ("bias", 3)]


def test_autocast_shows_as_casts() -> None:
    graph = graph_of(modules.NoGradAndAutocast(), torch.randn(3, 8))
    assert graph.specs[graph.nodes[-1].name].dtype == "bfloat16"
    assert operators(graph).count("aten._to_copy.default") == 3


def test_fx_takes_over_where_export_refuses() -> None:
    """Export does not take scripted submodules; the graph is the one that the plain module has."""
    plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    scripted = nn.Sequential(torch.jit.script(plain[0]), *plain[1:])
    x = torch.randn(2, 3)
    by_fx, by_export = capture(scripted, [x]), capture(plain, [x])
    assert (by_fx[1], by_export[1]) == ("fx", "export")
    assert operators(by_fx[0]) == operators(by_export[0])
    assert {(i.kind, i.target, i.index) for i in by_fx[0].inputs} == {
        (i.kind, i.target, i.index) for i in by_export[0].inputs
    }
    assert {path for _, path in by_fx[0].mutated} == {path for _, path in by_export[0].mutated}


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x


class Selects(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


class ReturnsNumber(nn.Module):
    def forward(self, x: torch.Tensor) -> float:
        return x.sum().item()


class Mismatched(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class HidesState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + x
        return self.seen


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Branches(), "depend"),
        (Selects(), "depend"),
        (ReturnsNumber(), "depend"),
        (Mismatched(), "cannot be traced: RuntimeError"),
        (HidesState(), "keeps its state in seen"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
@pytest.mark.parametrize("fake", [False, True], ids=["real", "fake"])
def test_what_is_no_straight_line_is_refused_in_one_line(
    model: nn.Module, reason: str, fake: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) if fake else nullcontext():
        fresh, x = type(model)(), torch.randn(3, 4)
        with pytest.raises(UsageError) as refused:
            capture(fresh, [x])
    message = str(refused.value)
    assert reason in message
    assert "\n" not in message
    forward = type(model).forward.__code__
    file, line = message.split(": ")[0].rsplit(":", 1)
    assert file == __file__
    assert forward.co_firstlineno <= int(line) <= forward.co_firstlineno + 3
    assert capfd.readouterr() == ("", "")


def test_nested_arguments_are_refused() -> None:
    class Pair(nn.Module):
        def forward(self, pair: list[torch.Tensor]) -> torch.Tensor:
            return pair[0] + pair[1]

    with pytest.raises(UsageError, match="argument 0 is a list of tensors"):
        capture(Pair(), [[torch.randn(2), torch.randn(2)]])
