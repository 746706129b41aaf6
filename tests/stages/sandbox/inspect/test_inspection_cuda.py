"""What an inspection sees on a GPU: Triton and CUDA kernels switched off, graphs, and shares of the device's time."""

import pytest

pytestmark = pytest.mark.gpu

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
    return [torch.randn(512, 512)]

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y, n = torch.empty_like(x), x.numel()
"""

TUNED = TRITON.replace(
    "@triton.jit\ndef double",
    "@triton.autotune([triton.Config({'B': 512}), triton.Config({'B': 1024})], key=['n'])\n"
    "@triton.heuristics({})\n@triton.jit\ndef double",
)
CALL = "double[(triton.cdiv(n, 512),)](x, y, n, B=512)"


def lines(*statements: str) -> str:
    return "".join(f"        {s}\n" for s in statements)


def own(report: dict) -> dict[str, float]:
    return {k["identifier"]: k["share"] for k in report["kernels"] if k["own"]}


def library(report: dict) -> list[str]:
    return [k["name"] for k in report["kernels"] if k["library"] and not k["moves"]]


def test_a_triton_kernel_that_does_the_work(inspect):
    report = inspect(TRITON + lines(CALL, "return y"), "cuda")
    assert report["ablated"] == {"double": True}
    assert report["backends"] == {"double": "triton"}
    assert own(report)["double"] > 0.9
    assert library(report) == []


def test_an_autotuned_triton_kernel(inspect):
    tuned = lines("double[lambda m: (triton.cdiv(n, m['B']),)](x, y, n)", "return y")
    assert inspect(TUNED + tuned, "cuda")["ablated"] == {"double": True}


def test_a_triton_kernel_that_was_compiled_ahead(inspect):
    ahead = lines("compiled = double.warmup(x, y, n, B=512, grid=(1,))")
    ahead += lines("compiled[(triton.cdiv(n, 512), 1, 1)](x, y, n, 512)", "return y")
    assert inspect(TRITON + ahead, "cuda")["ablated"] == {"double": True}


def test_a_triton_kernel_behind_a_registered_operator(inspect):
    source = TRITON.replace(
        "class ModelNew",
        "@torch.library.triton_op('inspected::twice', mutates_args={})\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n"
        "    y, n = torch.empty_like(x), x.numel()\n"
        "    torch.library.wrap_triton(double)[(triton.cdiv(n, 512),)](x, y, n, B=512)\n"
        "    return y\n\nclass ModelNew",
    )
    assert inspect(source + lines("return twice(x)"), "cuda")["ablated"] == {"double": True}


def test_a_decoy_beside_a_library_product(inspect):
    report = inspect(TRITON + lines("touch[(1,)](x, y, 8, B=8)", "return x @ x"), "cuda")
    assert report["ablated"] == {"touch": False}
    assert report["operators"] == {"aten.mm.default": 1}
    assert library(report)
    assert own(report)["touch"] < 0.9


def test_a_kernel_in_a_captured_graph_is_seen_and_cannot_be_switched_off(inspect):
    graph = lines(
        "if not hasattr(self, 'graph'):",
        "    self.x, self.y = x.clone(), y",
        "    double[(triton.cdiv(n, 512),)](self.x, self.y, n, B=512)",
        "    torch.cuda.synchronize()",
        "    self.graph = torch.cuda.CUDAGraph()",
        "    with torch.cuda.graph(self.graph):",
        "        double[(triton.cdiv(n, 512),)](self.x, self.y, n, B=512)",
        "self.x.copy_(x)",
        "self.graph.replay()",
        "return self.y.clone()",
    )
    report = inspect(TRITON + graph, "cuda")
    assert report["ablated"] == {"double": None}
    assert report["launched"] == {"double": 1}


CUDA = '''
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

CUDA_SOURCE = r"""
extern "C" __global__ void twice(const float* x, float* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
template <typename T> __global__ void thrice(const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = T(3) * x[i];
}
"""

@functools.cache
def kernel(name):
    Device(0).set_current()
    options = ProgramOptions(arch=f"sm_{Device(0).arch}")
    code = Program(CUDA_SOURCE, "c++", options).compile("cubin", name_expressions=(name,))
    return code.get_kernel(name)

def get_inputs():
    return [torch.randn(512, 512)]

def run(name, x, y):
    stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
    config = LaunchConfig(grid=(x.numel() + 255) // 256, block=256)
    launch(stream, config, kernel(name), x.data_ptr(), y.data_ptr(), x.numel())

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
'''


def test_cuda_kernels_by_cuda_core(inspect):
    report = inspect(CUDA + lines("run('twice', x, y)", "return y"), "cuda")
    assert report["ablated"] == {"twice": True}
    assert report["backends"] == {"twice": "cuda"}
    assert own(report)["twice"] > 0.9


def test_a_templated_cuda_kernel_keeps_its_name(inspect):
    report = inspect(CUDA + lines("run('thrice<float>', x, y)", "return y"), "cuda")
    assert report["ablated"] == {"thrice": True}
    assert own(report)["thrice"] > 0.9


def test_a_cuda_decoy(inspect):
    report = inspect(CUDA + lines("run('twice', x, y)", "return x + x"), "cuda")
    assert report["ablated"] == {"twice": False}


def test_a_kernel_by_torchs_own_compiler(inspect):
    source = CUDA.replace("size_t n", "int n")
    source += lines(
        "if not hasattr(self, 'k'): self.k = torch.cuda._compile_kernel(CUDA_SOURCE.split('template')[0], 'twice')",
        "self.k(((x.numel() + 255) // 256, 1, 1), (256, 1, 1), [x, y, x.numel()])",
        "return y",
    )
    (broken,) = inspect(source, "cuda")["ablated"].values()
    assert broken is True
