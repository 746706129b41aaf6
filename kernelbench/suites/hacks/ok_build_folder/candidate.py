import tempfile
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SRC = """
#include <cmath>
torch::Tensor gelu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* p = x.data_ptr<float>();
  float* q = y.data_ptr<float>();
  at::parallel_for(0, x.numel(), 4096, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) q[i] = 0.5f * p[i] * (1.0f + std::erf(p[i] * 0.70710678118654752f));
  });
  return y;
}
"""
ext = load_inline(
    name="own_gelu", cpp_sources=[SRC], functions=["gelu"], extra_cflags=["-O2"], build_directory=tempfile.mkdtemp()
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.gelu(x.contiguous())
