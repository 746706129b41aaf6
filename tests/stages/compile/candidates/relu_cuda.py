"""A complete CUDA candidate: ReLU in one pass, four floats a thread.

How a CUDA candidate is built and found. The kernel's source is the module-level literal CUDA_SOURCE, and CUDA_FLAGS has
NVRTC's flags. Kernelwright compiles them before the file is imported and leaves `<digest>.cubin` in the folder that
the variable KERNELWRIGHT_BUILD names; `_kernel` computes the same digest. Without that file the module still works
anywhere: NVRTC compiles on the first call.
"""

import functools
import hashlib
import os
from pathlib import Path

import torch
from cuda.core import Device, LaunchConfig, ObjectCode, Program, ProgramOptions, Stream, launch

CUDA_FLAGS = ["--use_fast_math"]
CUDA_SOURCE = r"""
extern "C" __global__ void relu(const float4* __restrict__ x, float4* __restrict__ y, size_t vectors) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < vectors) {
        float4 v = x[i];
        // A comparison that is false for nan keeps the nan, as torch does.
        v.x = v.x < 0.0f ? 0.0f : v.x;
        v.y = v.y < 0.0f ? 0.0f : v.y;
        v.z = v.z < 0.0f ? 0.0f : v.z;
        v.w = v.w < 0.0f ? 0.0f : v.w;
        y[i] = v;
    }
}
"""


@functools.cache
def _kernel(name: str, device: int):
    """The compiled kernel on one device."""
    Device(device).set_current()
    digest = hashlib.sha256("\n".join([*CUDA_FLAGS, CUDA_SOURCE]).encode()).hexdigest()[:32]
    built = Path(os.environ.get("KERNELWRIGHT_BUILD", ".")) / f"{digest}.cubin"
    if built.exists():
        return ObjectCode.from_cubin(built.read_bytes()).get_kernel(name)
    options = ProgramOptions(arch=f"sm_{Device(device).arch}", use_fast_math=True)
    return Program(CUDA_SOURCE, "c++", options).compile("cubin").get_kernel(name)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel = _kernel("relu", x.device.index)
        vectors = x.numel() // 4
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = LaunchConfig(grid=(vectors + 255) // 256, block=256)
        launch(stream, config, kernel, x.data_ptr(), y.data_ptr(), vectors)
        return y
