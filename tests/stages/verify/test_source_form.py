"""Which back end a source defines: by what is in it, not by what it says."""

import pytest

from kernelwright.stages.types import Backend, Status
from kernelwright.stages.verify.source_form import claim_check, read_form

CPP, CUDA, TRITON, TORCH = Backend.CPP, Backend.CUDA, Backend.TRITON, Backend.TORCH

PLAIN = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
JIT = "import triton\n@triton.jit\ndef k(x):\n    pass\n"
EXTENSION = "from torch.utils.cpp_extension import load_inline\n"
GLOBAL = 'S = r"""template <int N> __global__ void __launch_bounds__(256) gelu(float* x) { x[0] = 1; }"""\n'

DEFINES = {
    JIT: ({"k": TRITON}, TRITON),
    "import triton as t\n@t.autotune(configs=[], key=[])\n@t.jit\ndef k(x): pass\n": ({"k": TRITON}, TRITON),
    "from triton import jit as compile_it\n@compile_it(noinline=True)\ndef k(x): pass\n": ({"k": TRITON}, TRITON),
    "import triton\ndef k(x): pass\nfast = triton.jit(k)\n": ({"k": TRITON}, TRITON),
    "import triton\nTEXT = '''@triton.jit\ndef k(x):\n    pass\n'''\nexec(TEXT)\n": ({"k": TRITON}, TRITON),
    "import ctypes\nCPP_SOURCE = 'extern \"C\" void relu(float* x) { x[0] = 0; }'\n": ({"relu": CPP}, CPP),
    "import ctypes\nS = 'extern \"C\" { static int h() { return 1; } void f(int a) { if (a) { h(); } } }'\n": (
        {"h": CPP, "f": CPP},
        CPP,
    ),
    EXTENSION + "load_inline('n', ['at::Tensor f(at::Tensor x) { return x; }'])\n": ({"f": CPP}, CPP),
    EXTENSION + "import base64\nload_inline('n', [base64.b64decode('eA==')])\n": ({}, CPP),
    EXTENSION + "load_inline('n', [], cuda_sources=[make()])\n": ({}, CUDA),
    EXTENSION + GLOBAL + "load_inline('n', [], [S])\n": ({"gelu": CUDA}, CUDA),
    "from cuda.core import launch\n" + GLOBAL: ({"gelu": CUDA}, CUDA),
    "from cuda.core import launch\n" + GLOBAL + JIT: ({"gelu": CUDA, "k": TRITON}, CUDA),
}


@pytest.mark.parametrize("source", DEFINES)
def test_a_kernel_is_found_by_its_definition(source):
    form = read_form(source)
    assert (dict(form.kernels), form.backend) == DEFINES[source]


@pytest.mark.parametrize(
    "source",
    [
        PLAIN,
        # Words define nothing.
        '"""A @triton.jit kernel and a __global__ void k() { } would be faster."""\n' + PLAIN,
        "# @triton.jit\nMESSAGE = 'no @triton.jit here'\n" + PLAIN,
        # Neither does an import that may fail or is not used.
        "try:\n    import triton\nexcept ImportError:\n    triton = None\n" + PLAIN,
        EXTENSION + PLAIN,
        # A decorator of another package, and a text that nothing can load.
        "import numba_like\n@numba_like.jit\ndef k(x): pass\n",
        GLOBAL + PLAIN,
        # `load` is also what Triton's language and torch call other things.
        "import torch\nx = torch.load('a')\ny = torch.ops.aten.relu(x)\n",
        "def broken(:\n",
    ],
)
def test_a_source_without_a_kernel_is_of_torch(source):
    form = read_form(source)
    assert (dict(form.kernels), form.backend) == ({}, TORCH)


def test_comments_in_foreign_text_define_nothing():
    text = 'S = "/* __global__ void a() {} */ // __global__ void b() {}\\n __global__ void c() {} "\n'
    assert list(read_form("import cuda.core\n" + text).kernels) == ["c"]


def test_library_calls_in_foreign_text_are_named():
    text = "S = 'void f(at::Tensor x) { auto y = at::empty({1}); at::mm_out(y, x, x); cublasSgemm(h); }'\n"
    assert read_form(EXTENSION + text).library_calls == ("mm_out", "cublasSgemm")


@pytest.mark.parametrize(
    ("claimed", "passed"), [(None, True), (TORCH, True), (TRITON, True), (CPP, False), (CUDA, False)]
)
def test_a_claim_must_be_defined(claimed, passed):
    check = claim_check(read_form(JIT), claimed)
    assert (check.passed, check.refutes) == (passed, Status.STATIC_REJECT)
    assert passed or f"back end {claimed}, but the source defines triton" in check.detail


def test_a_claim_that_cannot_be_told_passes_and_says_so():
    check = claim_check(read_form("import cffi\n" + PLAIN), CPP)
    assert check.passed
    assert "cffi" in check.detail
