"""Distinct candidates of one pointwise problem, in Triton, in CUDA through load_inline, and in CUDA for NVRTC.

Each has a tag in its kernel's name, so that neither side's caches know it, and a block size of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.types import Backend, Candidate

BLOCKS = (256, 512, 1024, 128)


@dataclass(frozen=True)
class Operation:
    """y = f(x), in torch and in two kernel languages."""

    name: str
    torch: str
    triton: str
    cuda: str


RELU = Operation("relu", "torch.relu(x)", "tl.where(x < 0, 0.0, x)", "x < 0.0f ? 0.0f : x")
SMALL = (
    RELU,
    Operation("square", "x * x + 1", "x * x + 1", "x * x + 1.0f"),
    Operation("abs", "x.abs() + x", "tl.abs(x) + x", "fabsf(x) + x"),
    Operation("scale", "2 * x - 3", "2 * x - 3", "2.0f * x - 3.0f"),
    Operation("cube", "x * x * x", "x * x * x", "x * x * x"),
    Operation("leaky", "torch.where(x > 0, x, 0.1 * x)", "tl.where(x > 0, x, 0.1 * x)", "x > 0.0f ? x : 0.1f * x"),
)

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return []
"""

TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def {name}_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {expression}, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        {name}_kernel[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK={block})
        return y
"""

LOAD_INLINE = '''import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void {name}_kernel(const float* __restrict__ in, float* __restrict__ out, size_t n) {{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) {{
        float x = in[i];
        out[i] = {expression};
    }}
}}

torch::Tensor {name}(torch::Tensor in) {{
    auto x = in.contiguous();
    auto out = torch::empty_like(x);
    size_t n = x.numel();
    {name}_kernel<<<(n + {block} - 1) / {block}, {block}, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}}
"""

extension = load_inline(
    name="{name}_extension",
    cpp_sources="torch::Tensor {name}(torch::Tensor in);",
    cuda_sources=CUDA,
    functions=["{name}"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.{name}(x)
'''

NVRTC = '''import functools
import hashlib
import os
from pathlib import Path

import torch
from cuda.core import Device, LaunchConfig, ObjectCode, Program, ProgramOptions, Stream, launch

CUDA_SOURCE = r"""
extern "C" __global__ void {name}(const float* __restrict__ in, float* __restrict__ out, size_t n) {{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) {{
        float x = in[i];
        out[i] = {expression};
    }}
}}
"""


@functools.cache
def _kernel(device):
    Device(device).set_current()
    digest = hashlib.sha256("\\n".join([CUDA_SOURCE]).encode()).hexdigest()[:32]
    built = Path(os.environ.get("KERNELWRIGHT_BUILD", ".")) / f"{{digest}}.cubin"
    if built.exists():
        return ObjectCode.from_cubin(built.read_bytes()).get_kernel("{name}")
    options = ProgramOptions(arch=f"sm_{{Device(device).arch}}")
    return Program(CUDA_SOURCE, "c++", options).compile("cubin").get_kernel("{name}")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel = _kernel(x.device.index)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = LaunchConfig(grid=(x.numel() + {block} - 1) // {block}, block={block})
        launch(stream, config, kernel, x.data_ptr(), y.data_ptr(), x.numel())
        return y
'''

KINDS = {
    "triton": (TRITON, Backend.TRITON),
    "cuda": (NVRTC, Backend.CUDA),
    "cuda_inline": (LOAD_INLINE, Backend.CUDA),
}
"""How a candidate is written: `triton`, `cuda` (for our CUDA back end), `cuda_inline` (load_inline, for both sides)."""


def problem(operation: Operation, rows: int, columns: int) -> Problem:
    """The operation at a size, in KernelBench's contract."""
    source = PROBLEM.format(expression=operation.torch, rows=rows, columns=columns)
    return Problem(operation.name, source, f"{operation.name}.py")


def candidate(operation: Operation, kind: str, tag: str, number: int) -> Candidate:
    """The `number`th candidate of a kind; `tag` keeps those of one run apart from those of all others."""
    template, backend = KINDS[kind]
    text = template.format(
        name=f"{operation.name}_{tag}_{number}",
        expression=operation.triton if kind == "triton" else operation.cuda,
        block=BLOCKS[number % len(BLOCKS)],
    )
    return Candidate(text, backend, "throughput")
