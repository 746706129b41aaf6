"""Warnings: each kind shown on a source that earns it, and none on honest code that only looks like it."""

import textwrap

import pytest

from kernelwright.stages.static import read

HEAD = "import os, sys, threading, socket, subprocess, functools, torch, triton\nimport triton.language as tl\n"


def forward(body: str, before: str = "") -> str:
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return f"{HEAD}{before}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}\n"


def kernel(body: str, decorator: str = "@triton.jit") -> str:
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 4)
    return forward("return x", f"{decorator}\ndef k(x, y, n, B: tl.constexpr):\n{lines}\n")


TUNED = "@triton.autotune([], key=['n'])\n@triton.jit"
RESTORED = "@triton.autotune([], key=['n'], restore_value=['x'])\n@triton.jit"
IN_PLACE = "i = tl.arange(0, B)\ntl.store(x + i, 2 * tl.load(x + i))"

EARNED = {
    "handler-computes": forward("try:\n    return fast(x)\nexcept Exception:\n    return torch.relu(x)"),
    "state-between-calls": forward("MEMO[x.shape] = x\nreturn x", "MEMO = {}\n"),
    "state-between-calls ": forward("self.kept = x\nreturn x"),
    "state-between-calls  ": forward("return run(x)", "@functools.lru_cache(None)\ndef run(x):\n    return x\n"),
    "state-between-calls   ": forward("global LAST\nLAST = x\nreturn x"),
    "state-between-calls    ": forward("return x", "S = 'extern \"C\" void f() { static float kept = 0; }'\n"),
    "patches-foreign": forward("return x", "torch.allclose = lambda *a: True\n"),
    "patches-foreign ": forward("return x", "setattr(torch.cuda.Event, 'elapsed_time', None)\n"),
    "uses-environment": forward("return x * len(os.environ)"),
    "uses-files": forward("open('kept', 'w').write('x')\nreturn x"),
    "uses-network": forward("return x", "S = socket.socket()\n"),
    "uses-processes": forward("return x", "subprocess.Popen(['sleep', '3'])\n"),
    "uses-interpreter": forward("return sys._getframe(1).f_locals['x']"),
    "global-flag": forward("return x", "torch.backends.cuda.matmul.allow_tf32 = True\n"),
    "global-flag ": forward("torch.set_num_threads(1)\nreturn x"),
    "concurrency": forward("s = torch.cuda.Stream()\nreturn x"),
    "concurrency ": forward("threading.Thread(target=print).start()\nreturn x"),
    "concurrency  ": forward("g = torch.cuda.CUDAGraph()\nreturn x"),
    "lowers-precision": forward("return x.half().float()"),
    "lowers-precision ": forward("return x.to(torch.bfloat16)"),
    "lowers-precision  ": kernel("a = tl.dot(x, y, input_precision='tf32')"),
    "lowers-precision   ": forward("return x", "CPP_FLAGS = ['-O3', '-ffast-math']\n"),
    "autotune-in-place": kernel(IN_PLACE, TUNED),
    "autotune-in-place ": kernel("tl.atomic_add(y + tl.arange(0, B), 1.0)", TUNED),
    "narrow-offsets": kernel("row = tl.program_id(0)\ntl.store(y + row * n, 0.0)"),
}


@pytest.mark.parametrize("rule", EARNED)
def test_each_kind_is_found(rule):
    warnings = read(EARNED[rule]).warnings
    assert [w.rule for w in warnings] == [rule.strip()]
    assert all(w.line > 1 and w.sentence for w in warnings)


HONEST = [
    forward('"""One thread per element, on the caller\'s stream; `try`, `pass` and os.environ are words."""\nreturn x'),
    forward("return x", "class ShapeError(ValueError):\n    pass\n"),
    forward("return x", "try:\n    import fast\nexcept ImportError:\n    fast = torch.nn.Identity()\n"),
    forward("try:\n    return fast(x)\nexcept ValueError as error:\n    raise RuntimeError('sizes') from error"),
    forward("note = 'a // b # torch.backends.cudnn.benchmark = True'\nreturn x"),
    forward("local = {}\nlocal['x'] = x\nreturn local['x']"),
    forward(
        "return x", "S = 'extern \"C\" { static inline float h(float a) { static const float k = 1; return k; } }'\n"
    ),
    kernel(IN_PLACE, RESTORED),
    kernel("i = tl.arange(0, B)\ntl.store(y + i, 2 * tl.load(x + i))", TUNED),
    kernel("row = tl.program_id(0).to(tl.int64)\ntl.store(y + row * n, 0.0)"),
    f"{HEAD}class ModelNew(torch.nn.Module):\n    def __init__(self):\n        self.n = 1\n",
]


@pytest.mark.parametrize("source", HONEST)
def test_honest_code_that_looks_like_it_earns_none(source):
    assert read(source).warnings == ()
