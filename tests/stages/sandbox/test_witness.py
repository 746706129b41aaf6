"""What a candidate has replaced is named; what honest work adds or sets is not."""

import pytest

from kernelwright.stages.sandbox import witness
from kernelwright.stages.sandbox.pool import Zygote
from tests.stages.sandbox.trial import Trial, attempt, forward


@pytest.mark.parametrize(
    ("top", "told"),
    [
        ("time.perf_counter = lambda: 0.0", "time.perf_counter was replaced by <lambda>, candidate.py:3"),
        ("import time as t; setattr(t, 'time_ns', int)", "time.time_ns was replaced by the class builtins.int"),
        ("torch.allclose = lambda *a, **k: True", "torch.allclose was replaced by <lambda>, candidate.py:3"),
        ("torch.testing.assert_close = print", "torch.testing.assert_close was replaced"),
        ("_seed = torch.manual_seed; torch.manual_seed = lambda s: _seed(7)", "torch.manual_seed was replaced"),
        ("torch.Tensor.__eq__ = lambda a, b: True", "torch.Tensor.__eq__ was replaced"),
        ("torch.Tensor.copy_ = lambda a, b: a", "torch.Tensor.copy_ was"),
        ("torch.cuda.Event.elapsed_time = lambda *a: 0.001", "torch.cuda.Event.elapsed_time was replaced"),
        ("setattr(torch.cuda, 'synchronize', lambda *a: None)", "torch.cuda.synchronize was replaced"),
        ("torch._C._set_grad_enabled = lambda on: None", "torch._C._set_grad_enabled was replaced"),
        ("torch.nn.functional.gelu = lambda x: x", "torch.nn.functional.gelu was replaced"),
        ("torch.nn.Module.__call__ = lambda *a: None", "torch.nn.Module.__call__ was replaced"),
        ("torch.nn.Linear.forward = lambda *a: None", "torch.nn.Linear.forward was replaced"),
        ("del torch.nn.functional.relu", "torch.nn.functional.relu was removed"),
        ("import builtins; builtins.sum = lambda *a: 0", "builtins.sum was replaced"),
        ("import json; json.loads = lambda *a: {}", "json.loads was replaced"),
        ("import triton.testing as t; t.do_bench = lambda *a, **k: 0.1", "triton.testing.do_bench was replaced"),
        ("os.getpid = lambda: 1", "os.getpid was replaced"),
        ("import random; random.SystemRandom.random = lambda *a: 1", "random.SystemRandom.random was replaced"),
        (
            "from kernelwright.stages.sandbox import runner; runner.Runner.do_fetch = lambda *a: {}",
            "kernelwright.stages.sandbox.runner.Runner.do_fetch was replaced by <lambda>, candidate.py:3",
        ),
        (
            "import kernelwright.stages.sandbox.poison as p; p.free_pool = lambda *a: None",
            "kernelwright.stages.sandbox.poison.free_pool was replaced",
        ),
        (
            "m = torch.nn.Module.eval; m.__code__ = (lambda self: self).__code__",
            "the code of torch.nn.Module.eval was replaced",
        ),
    ],
)  # fmt: skip
def test_what_it_replaces_is_named_with_its_place(zygote: Zygote, top: str, told: str) -> None:
    trial = attempt(zygote, forward("return x", top=top))
    assert any(told in sentence for sentence in trial.changes), trial


HONEST = [
    "import triton, triton.language, triton.compiler, numpy.fft, torch.fx, torch.sparse, torch.onnx",
    "torch.backends.cudnn.benchmark = True",
    "torch.backends.cuda.matmul.allow_tf32 = False",
    "import torch._dynamo, torch._inductor",
    "f = torch.compile(lambda x: x + 1, backend='eager'); f(torch.ones(3))",
    "f = torch.jit.script(torch.nn.Linear(2, 2)); f(torch.ones(2, 2))",
    "import torch.fx; torch.fx.symbolic_trace(torch.nn.Linear(2, 2))",
    "lib = torch.library.Library('mine', 'DEF'); lib.define('f(Tensor x) -> Tensor')",
    "lib.impl('f', lambda x: x + 1, 'CPU'); torch.ops.mine.f(torch.ones(2))",
    "@torch.library.custom_op('mine2::g', mutates_args=())\ndef g(x: torch.Tensor) -> torch.Tensor:\n    return x + 1",
    "class F(torch.autograd.Function):\n    forward = staticmethod(lambda ctx, x: x)\nF.apply(torch.ones(2))",
    "import triton, triton.language as tl\n@triton.autotune(configs=[triton.Config({'B': 8})], key=['n'])",
    "@triton.jit\ndef k(p, n, B: tl.constexpr):\n    tl.store(p, n)",
    "import torch.utils.cpp_extension, torch.utils.benchmark, torch.profiler",
    "torch.set_grad_enabled(False); torch.set_grad_enabled(True)",
    "with torch.no_grad(), torch.autocast('cpu', torch.bfloat16): torch.ones(4, 4) @ torch.ones(4, 4)",
    "torch.Tensor.my_helper = lambda self: self; torch.mine = 1",
]


@pytest.fixture(scope="module")
def plain(zygote: Zygote) -> Trial:
    return attempt(zygote, forward("return x"))


def test_honest_work_replaces_nothing_and_leaves_the_flags(zygote: Zygote, plain: Trial) -> None:
    trial = attempt(zygote, forward("return x", top="\n".join(HONEST)))
    assert trial.kind == "", trial.said
    assert trial.changes == []
    assert witness.differences(plain.flags, trial.flags) == []


FLAGS = {
    "torch.backends.cuda.matmul.allow_tf32 = True": "matmul.allow_tf32 is left at True",
    "torch.backends.cudnn.allow_tf32 = False": "cudnn.allow_tf32 is left at False",
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False": "bf16_reduced_precision_reduction is",
    "torch.set_num_threads(1)": "num_threads is left at 1; the reference leaves it at 2",
    "torch.set_default_dtype(torch.float16)": "default_dtype is left at torch.float16",
    "torch.use_deterministic_algorithms(True)": "deterministic_algorithms is left at True",
    "torch.set_grad_enabled(False)": "grad_enabled is left at False",
    "torch.set_autocast_enabled('cuda', True)": "autocast_cuda is left at True",
    "sys.setswitchinterval(9)": "switch_interval is left at 9",
    "import gc; gc.disable()": "gc_enabled is left at False",
    "torch.set_default_device('meta')": "default_device is left at meta",
}


def test_a_flag_that_is_left_otherwise_than_by_the_reference_is_told(zygote: Zygote, plain: Trial) -> None:
    trial = attempt(zygote, forward("return x", top="\n".join(FLAGS)))
    sentences = witness.differences(plain.flags, trial.flags)
    for told in FLAGS.values():
        assert any(told in sentence for sentence in sentences), (told, sentences)


def test_so_is_the_precision_of_products_however_it_is_set(zygote: Zygote, plain: Trial) -> None:
    trial = attempt(zygote, forward("return x", top="torch.set_float32_matmul_precision('medium')"))
    told = "float32_matmul_precision is left at medium; the reference leaves it at highest"
    assert told in witness.differences(plain.flags, trial.flags)


def test_what_the_reference_sets_for_good_its_candidates_may_set(zygote: Zygote) -> None:
    both = attempt(zygote, forward("return x", top="torch.backends.cuda.matmul.allow_tf32 = True"))
    assert witness.differences(both.flags, both.flags) == []
