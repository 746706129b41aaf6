"""A complete Triton candidate: softmax, one program a row."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + i, mask=i < columns, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + i, powers / tl.sum(powers, 0), mask=i < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        assert x.is_cuda
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        softmax_rows[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return y
