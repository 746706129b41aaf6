"""What reading finds in a source: calls of the library however they are written, and nothing in mere words."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.static import backend_of, read, static_checks
from kernelwright.stages.types import Backend, Status

HEAD = "import torch\nimport torch.nn.functional as F\n"


def forward(body: str, before: str = "") -> str:
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return f"{HEAD}{before}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}\n"


CALLS = {
    "return torch.matmul(x, x)": ["torch.matmul"],
    "return x @ x": ["@"],
    "x @= x; return x": ["@"],
    "return F.gelu(x)": ["torch.nn.functional.gelu"],
    "return torch.ops.aten.mm.default(x, x)": ["torch.ops.aten.mm.default"],
    "return torch.ops.aten.add_(x, x)": ["torch.ops.aten.add_"],
    "return getattr(torch, 'mat' + 'mul')(x, x)": ["torch.matmul"],
    "return getattr(torch, ''.join(['m', 'm']))(x, x)": ["torch.mm"],
    "return getattr(torch, 'mm'[::-1])(x, x)": ["torch.mm"],
    "name = f'{\"mat\"}mul'\nreturn getattr(torch, name)(x, x)": ["torch.matmul"],
    "return __import__('torch').mm(x, x)": ["torch.mm"],
    "mm = torch.mm\nreturn mm(x, x)": ["torch.mm"],
    "return (x + 1).sum(-1)": ["Tensor.sum"],
    "return x.mul_(2).relu()": ["Tensor.mul_", "Tensor.relu"],
    "from torch import mm as product\nreturn product(x, x)": ["torch.mm"],
    "return torch.linalg.norm(x)": ["torch.linalg.norm"],
}


@pytest.mark.parametrize("body", CALLS)
def test_calls_that_compute_are_found(body):
    found = read(forward(body)).torch_calls
    assert sorted(c.name for c in found) == sorted(CALLS[body])


def test_modules_of_torch_that_are_called_are_found():
    source = (
        f"{HEAD}class ModelNew(torch.nn.Module):\n    def __init__(self):\n        self.fc = torch.nn.Linear(2, 2)\n"
    )
    source += (
        "        self.w = torch.nn.Parameter(torch.ones(2))\n    def forward(self, x):\n        return self.fc(x)\n"
    )
    assert [c.name for c in read(source).torch_calls] == ["torch.nn.Linear"]


@pytest.mark.parametrize(
    "body",
    [
        "return torch.empty_like(x)",
        "y = torch.zeros(3, device=x.device)\nreturn y.view(-1).contiguous()",
        '"""Uses torch.matmul(x, x) no more."""\nreturn x',
        "# return torch.matmul(x, x)\nreturn x",
        "message = 'no torch.matmul # here'\nreturn x",
        "import math\nreturn x.reshape(math.floor(2.0), -1)",
        "seen = set()\nseen.add(3)\nreturn x",
    ],
)
def test_what_does_not_compute_is_no_call(body):
    assert read(forward(body)).torch_calls == ()


def test_library_calls_in_native_text_are_found():
    before = "from torch.utils.cpp_extension import load_inline\n"
    text = 'SRC = """\n// at::bmm is not called\nat::Tensor f(at::Tensor x) { return at::mm(x, x); }\n"""\n'
    report = read(forward("return ext.f(x)", before + text + "ext = load_inline('e', [SRC], functions=['f'])\n"))
    assert [c.name for c in report.torch_calls] == ["at::mm"]
    assert report.inline
    assert dict(report.kernels) == {"f": Backend.CPP}


def test_an_own_kernel_of_the_same_name_is_no_call_of_torch():
    before = "import ctypes\nCPP_SOURCE = 'extern \"C\" void relu(float* x) { x[0] = 0; }'\n"
    report = read(forward("library().relu(x.data_ptr())\nreturn x", before))
    assert report.torch_calls == ()
    assert report.backends == {Backend.CPP}


def test_torch_compile_is_named_however_it_is_used():
    assert read(forward("return torch.compile(F.gelu)(x)")).compiles
    assert read(forward("return run(x)", "@torch.compile\ndef run(x):\n    return x\n")).compiles
    assert not read(forward("return x", "# torch.compile would help\n")).compiles


def test_tunables_are_constants_options_and_configurations():
    before = "import triton\nBLOCK = 1024\nname = 'x'\nlower = 3\n"
    before += "@triton.autotune([triton.Config({'B': 64}, num_warps=4)], key=[])\n@triton.jit\ndef k(x, B): pass\n"
    found = read(forward("k[(1,)](x, R=16, num_stages=3, n=5)\nreturn x", before)).tunables
    assert {(t.name, t.value) for t in found} == {
        ("BLOCK", 1024),
        ("B", 64),
        ("num_warps", 4),
        ("R", 16),
        ("num_stages", 3),
    }


def test_a_source_that_python_cannot_parse_is_a_compile_error_with_its_line():
    report = read("import torch\ndef forward(:\n")
    (check,) = static_checks(report, None)
    assert (check.passed, check.refutes) == (False, Status.COMPILE_ERROR)
    assert check.detail.startswith("candidate.py:2: ")
    assert static_checks(read("a\0b"), None)[0].refutes is Status.COMPILE_ERROR


def test_a_file_without_the_class_is_refused():
    failed = [c for c in static_checks(read("class Model: pass\n"), None) if not c.passed]
    assert [(c.name, c.refutes) for c in failed] == [("defines ModelNew", Status.STATIC_REJECT)]


@pytest.mark.parametrize("binding", ["ModelNew = build()", "from a import X as ModelNew", "globals()['ModelNew'] = X"])
def test_the_class_may_be_bound_in_any_way(binding):
    assert all(c.passed for c in static_checks(read(binding + "\n"), None))


def test_a_claimed_back_end_must_be_defined():
    """The library's answer in a handler, under the name of Triton."""
    source = forward(
        "try:\n    import fast_triton\n    return fast_triton.run(x)\nexcept Exception:\n    return F.gelu(x)"
    )
    failed = [c for c in static_checks(read(source), Backend.TRITON) if not c.passed]
    assert [(c.name, c.refutes) for c in failed] == [("back end as claimed", Status.STATIC_REJECT)]
    assert all(c.passed for c in static_checks(read(source), None))
    assert backend_of(source) is Backend.TORCH


@given(st.text())
def test_any_text_can_be_read(text):
    read(text)
    read(f"x = {text!r}  # {text.split(chr(10))[0] if text.isprintable() else ''}\n")
