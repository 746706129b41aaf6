"""What an inspection sees of candidates that work, pretend to, or fall back; all on the CPU."""

import textwrap

import pytest
import torch

from kernelwright.stages.sandbox.inspect.cuda_hook import base_name

RELU = '''
CPP_FLAGS = []
CPP_SOURCE = r"""
extern "C" void relu(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}
extern "C" void first(const float* x, float* y) { y[0] = x[0]; }
"""
DIGEST = hashlib.sha256("\\n".join([*CPP_FLAGS, CPP_SOURCE]).encode()).hexdigest()[:32]
LIBRARY = ctypes.CDLL(str(BUILD / f"{DIGEST}.so"))
P = lambda t: ctypes.c_void_p(t.data_ptr())
N = lambda t: ctypes.c_long(t.numel())

def get_inputs():
    return [torch.randn(64, 32)]
'''

TRITON = """
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

@triton.jit
def touch(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)

def get_inputs():
    return [torch.randn(100)]
"""


def model(forward: str, init: str = "") -> str:
    body = textwrap.indent(forward.strip(), " " * 8)
    made = f"    def __init__(self):\n        super().__init__()\n{textwrap.indent(init, ' ' * 8)}\n" if init else ""
    return f"\nclass ModelNew(torch.nn.Module):\n{made}    def forward(self, x):\n{body}\n"


HONEST = {
    "straight": "y = torch.empty_like(x)\nLIBRARY.relu(P(x), P(y), N(x))\nreturn y",
    "getattr": "y = torch.empty_like(x)\ngetattr(LIBRARY, 're' + 'lu')(P(x), P(y), N(x))\nreturn y",
    "item": "y = torch.empty_like(x)\nLIBRARY['relu'](P(x), P(y), N(x))\nreturn y",
    "partial": "y = torch.empty_like(x)\nfunctools.partial(LIBRARY.relu, P(x), P(y))(N(x))\nreturn y",
    "in a dictionary": "y = torch.empty_like(x)\n{'k': LIBRARY.relu}['k'](P(x), P(y), N(x))\nreturn y",
    "prototype": (
        "y = torch.empty_like(x)\n"
        "proto = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)\n"
        "proto(('relu', LIBRARY))(x.data_ptr(), y.data_ptr(), x.numel())\nreturn y"
    ),
    "in place over the library's result": "y = x + 1\nLIBRARY.relu(P(y), P(y), N(y))\nreturn y",
    "by numpy's memory": (
        "import numpy\ny = torch.from_numpy(numpy.zeros((64, 32), dtype='float32'))\n"
        "LIBRARY.relu(P(x), P(y), N(x))\nreturn y"
    ),
}


@pytest.mark.parametrize("way", HONEST)
def test_a_kernel_that_does_the_work_is_missed_whichever_way_it_is_called(inspect, way):
    report = inspect(RELU + model(HONEST[way]))
    (name,) = report["launched"]
    assert report["ablated"] == {name: True}
    assert report["backends"] == {name: "cpp"}


def test_a_buffer_that_is_used_again_does_not_hide_the_kernel(inspect):
    """The answer of an earlier call on the same values still lies in it: another call comes before the ablated one."""
    forward = "LIBRARY.relu(P(x), P(self.kept), N(x))\nreturn self.kept"
    report = inspect(RELU + model(forward, "self.kept = torch.zeros(64, 32)"))
    assert report["ablated"] == {"relu": True}


DECOYS = {
    "on one element": "y = torch.empty(1)\nLIBRARY.first(P(x), P(y))\nreturn torch.relu(x)",
    "overwritten": "y = torch.empty_like(x)\nLIBRARY.relu(P(x), P(y), N(x))\ny.copy_(torch.relu(x))\nreturn y",
    "times zero": "y = torch.empty_like(x)\nLIBRARY.relu(P(x), P(y), N(x))\nreturn torch.relu(x) + 0 * y",
    "times almost zero": "y = torch.empty_like(x)\nLIBRARY.relu(P(x), P(y), N(x))\nreturn torch.relu(x) + 1e-9 * y",
    "minus itself": "y = torch.empty_like(x)\nLIBRARY.relu(P(x), P(y), N(x))\nreturn torch.relu(x) + (y - y)",
    "masked away": "y = torch.empty_like(x)\nLIBRARY.relu(P(x), P(y), N(x))\n"
    "return torch.where(y > 1e30, y, torch.relu(x))",
}


@pytest.mark.parametrize("way", DECOYS)
def test_a_decoy_is_not_missed(inspect, way):
    report = inspect(RELU + model(DECOYS[way]))
    assert list(report["ablated"].values()) == [False]
    assert "aten.relu.default" in report["operators"]


def test_each_kernel_is_judged_by_itself(inspect):
    forward = "y, z = torch.empty_like(x), torch.empty(1)\n"
    forward += "LIBRARY.relu(P(x), P(y), N(x))\nLIBRARY.first(P(x), P(z))\nreturn y"
    assert inspect(RELU + model(forward))["ablated"] == {"relu": True, "first": False}


def test_a_kernel_without_which_the_candidate_raises_is_needed(inspect):
    forward = "y = torch.zeros(1)\nLIBRARY.first(P(x), P(y))\nassert y[0] == x[0, 0]\nreturn y"
    assert inspect(RELU + model(forward))["ablated"] == {"first": True}


def test_a_kernel_that_is_never_called_was_not_launched(inspect):
    report = inspect(RELU + model("return torch.relu(x)"))
    assert report["launched"] == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton's interpreter is off where there is a GPU")
def test_triton_kernels_are_seen_through_autotuners_and_heuristics(inspect):
    bench = "do_bench=lambda call, quantiles: (call(), [1.0, 1.0, 1.0])[1]"
    tuned = TRITON.replace(
        "@triton.jit\ndef double",
        f"@triton.autotune([triton.Config({{'B': 64}}), triton.Config({{'B': 32}})], key=['n'], {bench})\n"
        "@triton.heuristics({})\n@triton.jit\ndef double",
    )
    made = "y, z = torch.empty_like(x), torch.empty_like(x)\n"
    decoy = "\ntouch[(1,)](x, z, 100, B=128)\nreturn y"
    plain = TRITON + model(f"{made}double[(1,)](x, y, 100, B=128){decoy}")
    wrapped = tuned + model(f"{made}double[lambda m: (triton.cdiv(100, m['B']),)](x, y, 100){decoy}")
    for source in (plain, wrapped):
        assert inspect(source)["ablated"] == {"double": True, "touch": False}


def test_an_answer_from_a_handler_is_seen_with_its_line(inspect):
    source = RELU + model("try:\n    return missing(x)\nexcept NameError:\n    return self.slow(x)")
    source += "    def slow(self, x):\n        return torch.relu(x)\n"
    report = inspect(source)
    (fallback,) = report["fallbacks"]
    assert fallback["operators"] == ["aten.relu.default"]


def test_an_answer_from_a_handler_of_executed_text_is_seen_too(inspect):
    body = "def run(x):\n    try:\n        return missing(x)\n    except NameError:\n        return torch.relu(x)\n"
    report = inspect(RELU + f"exec({body!r})\n" + model("return run(x)"))
    assert [f["operators"] for f in report["fallbacks"]] == [["aten.relu.default"]]


@pytest.mark.parametrize(
    "forward",
    [
        "try:\n    return torch.relu(x)\nexcept Exception:\n    return torch.clamp(x, min=0)",
        "try:\n    self.kept\nexcept AttributeError:\n    self.kept = torch.randn(3) * 2\nreturn torch.relu(x)",
        "try:\n    import no_such_package\nexcept ImportError:\n    no_such_package = None\nreturn torch.relu(x)",
    ],
)
def test_a_handler_that_is_not_taken_each_time_or_does_not_compute_is_no_fallback(inspect, forward):
    assert inspect(RELU + model(forward))["fallbacks"] == []


def test_operators_are_counted_with_their_size_but_not_views_and_copies(inspect):
    report = inspect(
        RELU + model("y = x.t().contiguous().view(-1).to(torch.float64)\nreturn (y + 1).relu() + y[:3].sum()")
    )
    assert report["operators"] == {"aten.add.Tensor": 2, "aten.relu.default": 1, "aten.sum.default": 1}
    assert report["elements"]["aten.sum.default"] == 3
    assert report["elements"]["aten.relu.default"] == 64 * 32
    assert report["largest"] == 64 * 32


def test_inputs_and_parameters_are_what_they_were_before_each_call(inspect):
    """A module that writes into its argument and its state gives the same answer each time, so that noise is none."""
    forward = "LIBRARY.relu(P(x), P(x), N(x))\nself.seen += x.sum()\nreturn x + self.seen"
    report = inspect(RELU + model(forward, "self.register_buffer('seen', torch.zeros(1))"))
    assert report["ablated"] == {"relu": True}


def test_random_modules_and_atomic_like_noise_do_not_make_a_decoy_matter(inspect):
    noisy = "self.n += 1\ny = torch.empty_like(x)\nLIBRARY.relu(P(x), P(y), N(x))\n"
    noisy += "return torch.relu(x) * (1 + 1e-3 * (self.n % 3)) + torch.rand(1)"
    assert inspect(RELU + model(noisy, "self.n = 0"))["ablated"] == {"relu": False}


def test_torch_compile_is_noticed(inspect):
    report = inspect(RELU + "fast = torch.compile(torch.relu)\n" + model("return torch.relu(x)"))
    assert report["compiled"] == 1


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("double", "double"),
        ("void app::gelu<float, 4>(float const*, float*, int)", "gelu"),
        ("void (anonymous namespace)::gelu(float*)", "gelu"),
        ("std::enable_if<true, void>::type thrice<float>(float*)", "thrice"),
        ("_Z6thriceIfEvPKT_PS0_m", "thrice"),
        ("_ZN3app4geluEPf", "gelu"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ],
)
def test_a_kernels_name_on_the_device_leads_to_its_name_in_the_source(name, identifier):
    assert base_name(name) == identifier


@pytest.mark.parametrize(
    ("forward", "copied"),
    [
        (
            "y = torch.sigmoid(x)\nz = torch.empty_like(y)\nLIBRARY.relu(P(y), P(z), N(y))\nreturn z",
            ["aten.sigmoid.default"],
        ),
        ("y = torch.empty_like(x)\nLIBRARY.relu(P(x), P(y), N(x))\nreturn y", []),
        ("y = torch.empty_like(x)\nLIBRARY.relu(P(x), P(y), N(x))\nreturn torch.sigmoid(y).clone()", []),
        ("y = torch.tanh(x)\nz = torch.empty_like(y)\nLIBRARY.relu(P(y), P(z), N(y))\nreturn z", []),
    ],
)
def test_a_kernel_that_moves_what_the_library_computed_is_told_from_one_that_computes(inspect, forward, copied):
    assert inspect(RELU + model(forward))["copied"] == copied
