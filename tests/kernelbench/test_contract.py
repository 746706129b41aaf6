"""A problem that cannot be used ends in one line that names the place; one that can gives a model and its inputs."""

import traceback

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.kernelbench.contract import Contract, check, draw_inputs, instantiate, load
from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.kernelbench.problem import Precision, Problem

GOOD = """\
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.randn(3, 4)]

def get_init_inputs():
    return [4]
"""


def problem(source: str = GOOD) -> Problem:
    return Problem(name="m", source=source, origin="m.py")


def edited(*edits: tuple[str, str]) -> str:
    source = GOOD
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return source


# What is wrong: the edits that make it so, and the line that the user reads.
NOT_LOADABLE = {
    "syntax": (
        [("def __init__(self, width):", "def __init__(self, width:")],
        "m.py:4: not Python: '(' was never closed",
    ),
    "null byte": ([("return [4]", "return [4]\0")], "m.py:1: not Python: source code string cannot contain null bytes"),
    "top level raises": (
        [("import torch\n", "import torch\nimport numpi\n")],
        "m.py:2: the file raises ModuleNotFoundError: No module named 'numpi'",
    ),
    "top level exits": (
        [("import torch\n", "import torch\nraise SystemExit(3)\n")],
        "m.py:2: the file raises SystemExit: 3",
    ),
    "no Model": ([("class Model", "class Net")], "m.py:1: no class Model; another can be named as m.py:ClassName"),
    "no get_inputs": ([("def get_inputs", "def inputs")], "m.py:1: no function get_inputs()"),
    "no get_init_inputs": ([("def get_init_inputs", "def init")], "m.py:1: no function get_init_inputs()"),
    "Model is no module": (
        [("Model(torch.nn.Module)", "Model(object)")],
        "m.py:3: Model is not a subclass of torch.nn.Module",
    ),
    "Model is an instance": (
        [("class Model", "class Net"), ("def get_inputs", "Model = Net(4)\n\ndef get_inputs")],
        "m.py:11: Model is not a subclass of torch.nn.Module",
    ),
    "get_inputs is a list": (
        [("return [4]", "return [4]\n\nget_inputs = [torch.ones(4)]")],
        "m.py:17: get_inputs is not a function",
    ),
    "TOLERANCE is text": (
        [("import torch\n", "import torch\nTOLERANCE = 'tight'\n")],
        "m.py:2: TOLERANCE is 'tight', not a positive number",
    ),
    "TOLERANCE is zero": (
        [("import torch\n", "import torch\nTOLERANCE = 0.0\n")],
        "m.py:2: TOLERANCE is 0.0, not a positive number",
    ),
    "TOLERANCE is True": (
        [("import torch\n", "import torch\nTOLERANCE = True\n")],
        "m.py:2: TOLERANCE is True, not a positive number",
    ),
    "PRECISION is unknown": (
        [("import torch\n", "import torch\nPRECISION = 'half'\n")],
        "m.py:2: PRECISION is 'half'; known: 'strict', 'tf32', 'task'",
    ),
    "SHAPES is a list": (
        [("import torch\n", "import torch\nSHAPES = ['gpu']\n")],
        "m.py:2: SHAPES is of type list, not a dictionary {label: {NAME: number}}",
    ),
    "SHAPES is flat": (
        [("import torch\n", "import torch\nSHAPES = {'gpu': 4}\n")],
        "m.py:2: SHAPES['gpu'] is of type int, not a dictionary {NAME: number}",
    ),
    "SHAPES holds a float": (
        [("import torch\n", "import torch\nSHAPES = {'gpu': {'N': 4.0}}\n")],
        "m.py:2: SHAPES['gpu'] maps 'N' to 4.0, not a name to a positive integer",
    ),
}

NOT_RUNNABLE = {
    "constructor raises": (
        [("super().__init__()", "super().__init__(); width.size")],
        "m.py:5: Model(...) raises AttributeError: 'int' object has no attribute 'size'",
    ),
    "constructor raises in a helper": (
        [
            ("super().__init__()", "super().__init__(); helper()"),
            ("def get_inputs", "def helper():\n    1 / 0\n\ndef get_inputs"),
        ],
        "m.py:12: Model(...) raises ZeroDivisionError: division by zero",
    ),
    "get_inputs raises": (
        [("torch.randn(3, 4)", "torch.randn(3, -4)")],
        "m.py:12: get_inputs raises RuntimeError: Trying to create tensor with negative dimension -4: [3, -4]",
    ),
    "get_inputs raises without a text": (
        [("    return [torch.randn(3, 4)]", "    raise NotImplementedError")],
        "m.py:12: get_inputs raises NotImplementedError",
    ),
    "get_inputs wants an argument": (
        [("get_inputs()", "get_inputs(n)")],
        "m.py:11: get_inputs raises TypeError: get_inputs() missing 1 required positional argument: 'n'",
    ),
    "get_init_inputs raises": (
        [("return [4]", "return WIDTH")],
        "m.py:15: get_init_inputs raises NameError: name 'WIDTH' is not defined",
    ),
    "get_inputs gives a tensor": (
        [("[torch.randn(3, 4)]", "torch.randn(3, 4)")],
        "m.py:11: get_inputs returns Tensor, not a list or tuple of forward's arguments",
    ),
    "get_inputs gives nothing": (
        [("return [torch.randn(3, 4)]", "torch.randn(3, 4)")],
        "m.py:11: get_inputs returns NoneType, not a list or tuple of forward's arguments",
    ),
    "get_init_inputs gives a number": (
        [("return [4]", "return 4")],
        "m.py:14: get_init_inputs returns int, not a list or tuple of the constructor's arguments",
    ),
    "too few constructor arguments": (
        [("return [4]", "return []")],
        "m.py:14: get_init_inputs gives 0 values to Model(width): missing a required argument: 'width'",
    ),
    "too many constructor arguments": (
        [("return [4]", "return [4, 5]")],
        "m.py:14: get_init_inputs gives 2 values to Model(width): too many positional arguments",
    ),
    "too many arguments for a constructor of its own": (
        [("def __init__(self, width)", "def other(self, width)")],
        "m.py:3: Model(...) raises TypeError: Model.__init__() takes 1 positional argument but 2 were given",
    ),
    "too few inputs": (
        [("forward(self, x)", "forward(self, x, y)")],
        "m.py:11: get_inputs gives 1 value to forward(x, y): missing a required argument: 'y'",
    ),
    "too many inputs": (
        [("[torch.randn(3, 4)]", "[torch.randn(3, 4), 2]")],
        "m.py:11: get_inputs gives 2 values to forward(x): too many positional arguments",
    ),
    "no forward": (
        [("def forward", "def forwards")],
        'm.py:3: forward raises NotImplementedError: Module [Model] is missing the required "forward" function',
    ),
    "forward raises": (
        [("torch.randn(3, 4)", "torch.randn(3, 5)")],
        "m.py:9: forward raises RuntimeError: The size of tensor a (5) must match the size of tensor b (4) at "
        "non-singleton dimension 1",
    ),
    "forward gives text": (
        [("return x * self.weight", "return 'y'")],
        "m.py:8: forward returns str, not a tensor or a tuple, list or dict of tensors",
    ),
    "forward gives text beside a tensor": (
        [("return x * self.weight", "return x, {'name': 'y'}")],
        "m.py:8: forward returns str within tuple, not a tensor or a tuple, list or dict of tensors",
    ),
    "forward gives numbers only": (
        [("return x * self.weight", "return 3, 4.0")],
        "m.py:8: forward returns tuple without a tensor in it",
    ),
    "forward gives nothing": (
        [("return x * self.weight", "x * self.weight")],
        "m.py:8: forward returns NoneType without a tensor in it",
    ),
    "input elsewhere": (
        [
            ("forward(self, x)", "forward(self, x, y)"),
            ("[torch.randn(3, 4)]", "[torch.randn(4), [torch.ones(3, device='meta')]]"),
        ],
        "m.py:11: input 1 of get_inputs is on meta, not on cpu",
    ),
}


@pytest.mark.parametrize(("edits", "message"), NOT_LOADABLE.values(), ids=NOT_LOADABLE)
def test_load_names_the_place(edits: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(problem(edited(*edits)))
    assert str(caught.value) == message


@pytest.mark.parametrize(("edits", "message"), NOT_RUNNABLE.values(), ids=NOT_RUNNABLE)
def test_check_names_the_place(edits: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(problem(edited(*edits)), "cpu")
    assert str(caught.value) == message


def test_a_long_text_of_several_lines_becomes_one_line_of_bounded_length() -> None:
    source = edited(("return x * self.weight", "raise ValueError('words\\n' * 1000)"))
    with pytest.raises(UsageError) as caught:
        check(problem(source), "cpu")
    message = str(caught.value)
    assert message.startswith("m.py:9: forward raises ValueError: words words")
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize(
    "output",
    ["x", "(x, None)", "[x, (x, 3)]", "{'y': x, 'loss': 0.5}", "(x.sum(), x.amax())", "(x, True, 1j)"],
)
def test_outputs_that_are_allowed(output: str) -> None:
    check(problem(edited(("return x * self.weight", f"return {output}"))), "cpu")


@pytest.mark.parametrize(
    ("signature", "inputs"),
    [("x, y=2", "[torch.ones(4)]"), ("*xs", "(torch.ones(4), 3)"), ("x, scale", "[torch.ones(4), 0.5]")],
)
def test_arguments_that_forward_can_take(signature: str, inputs: str) -> None:
    returned = "xs[0]" if signature == "*xs" else "x"
    source = edited(
        ("forward(self, x)", f"forward(self, {signature})"),
        ("return x * self.weight", f"return {returned}"),
        ("[torch.randn(3, 4)]", inputs),
    )
    check(problem(source), "cpu")


def test_optional_names_are_read() -> None:
    contract = load(problem(f"TOLERANCE = 1e-3\nSHAPES = {{'gpu': {{'N': 64}}}}\n{GOOD}"))
    assert contract.tolerance == 1e-3
    assert load(problem(f"PRECISION = 'tf32'\n{GOOD}")).precision is Precision.TF32
    assert contract.shapes == {"gpu": {"N": 64}}
    plain = load(problem())
    assert plain.tolerance is None
    assert plain.shapes == {}


def test_the_source_is_run_as_it_is_written_and_not_with_our_future_imports() -> None:
    contract = load(problem(f"def f(x: int): ...\nassert f.__annotations__['x'] is int\n{GOOD}"))
    assert contract.model_class.__name__ == "Model"


def test_dataclasses_with_text_annotations_work() -> None:
    config = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    n: int\n"
    load(problem(config + GOOD))


def test_tracebacks_show_the_source_that_ran() -> None:
    contract = load(problem(edited(("return x * self.weight", "return x.wait()  # here"))))
    model, inputs = instantiate(contract, "cpu", 0)
    with pytest.raises(AttributeError) as caught:
        model(*inputs)
    assert "return x.wait()  # here" in "".join(traceback.format_exception(caught.value))


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=20, deadline=None)
def test_a_seed_decides_the_parameters_and_the_inputs(seed: int) -> None:
    contract = load(problem())
    model, inputs = instantiate(contract, "cpu", seed)
    again, _ = instantiate(contract, "cpu", seed)
    assert torch.equal(model.weight, again.weight)
    assert torch.equal(inputs[0], draw_inputs(contract, "cpu", seed)[0])
    assert not torch.equal(inputs[0], draw_inputs(contract, "cpu", seed ^ 1)[0])


def test_inputs_do_not_repeat_the_numbers_of_the_parameters() -> None:
    contract = load(problem(edited(("torch.randn(3, 4)", "torch.rand(3, 4)"))))
    model, (x,) = instantiate(contract, "cpu", 0)
    assert not torch.equal(model.weight, x[0])


def test_training_mode_stays_as_the_constructor_left_it() -> None:
    assert instantiate(load(problem()), "cpu", 0)[0].training
    evaluating = load(problem(edited(("super().__init__()", "super().__init__(); self.eval()"))))
    assert not instantiate(evaluating, "cpu", 0)[0].training


def test_everything_is_made_on_the_device() -> None:
    model, (x,) = instantiate(load(problem()), "meta", 0)
    assert model.weight.device.type == x.device.type == "meta"


HUGE = [("return [4]", "return [2**20]"), ("torch.randn(3, 4)", "torch.randn(2**24, 2**20)")]
"""64 TiB of input: whoever allocates it fails."""


def test_huge_inputs_are_checked_without_being_allocated() -> None:
    check(problem(edited(*HUGE)), "cpu")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("x * x.new_ones(7)", r"^m\.py:9: forward raises RuntimeError: .* length 7 .*\[16777216, 1048576\]$"),
        ("3", r"^m\.py:8: forward returns int without a tensor in it$"),
    ],
)
def test_huge_inputs_are_checked_as_well_as_others(
    returned: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=message):
        check(problem(edited(*HUGE, ("return x * self.weight", f"return {returned}"))), "cpu")
    assert capfd.readouterr() == ("", "")


def test_code_that_needs_values_is_really_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.kernelbench.contract.FAKE_ABOVE_ELEMENTS", 1)
    check(problem(edited(("return x * self.weight", "return x[x > x.mean().item()]"))), "cpu")


def test_a_device_that_is_unknown_or_absent() -> None:
    contract: Contract = load(problem())
    with pytest.raises(UsageError, match="no device is called 'gpu'; use cpu or cuda"):
        instantiate(contract, "gpu", 0)
    with pytest.raises(EnvironmentFault, match="finds no device cuda:99; use --device cpu"):
        check(problem(), "cuda:99")


@pytest.mark.gpu
def test_on_cuda() -> None:
    check(problem(), "cuda")
    with pytest.raises(UsageError, match="input 0 of get_inputs is on cpu, not on cuda"):
        check(problem(edited(("torch.randn(3, 4)", "torch.randn(3, 4, device='cpu')"))), "cuda")
    with pytest.raises(EnvironmentFault, match="does not fit into the device's memory; choose a smaller shape"):
        instantiate(load(problem(edited(*HUGE))), "cuda", 0)
