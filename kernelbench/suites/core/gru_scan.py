"""A minimal gated recurrence, h_0 = 0, for t = 1 ... TIME:

    f_t = sigmoid(W_f x_t + U_f h_{t-1} + b_f)
    c_t = tanh(W_c x_t + U_c (f_t h_{t-1}) + b_c)
    h_t = (1 - f_t) h_{t-1} + f_t c_t

x: (TIME, BATCH, WIDTH); y = (h_1, ..., h_TIME): (TIME, BATCH, HIDDEN). It is a GRU with one gate instead of two, for
which torch has no fused operator. The products with x do not depend on h: one matrix product computes them all.
"""

import torch
import torch.nn as nn

TIME = 32
BATCH = 32
WIDTH = 128
HIDDEN = 128
SHAPES = {
    "tiny": {"TIME": 5, "BATCH": 3, "WIDTH": 24, "HIDDEN": 20},
    "gpu": {"TIME": 64, "BATCH": 256, "WIDTH": 1024, "HIDDEN": 1024},
}


class Model(nn.Module):
    """Scan over time steps with one gate."""

    def __init__(self, width, hidden):
        super().__init__()
        self.from_input = nn.Linear(width, 2 * hidden)
        self.gate = nn.Linear(hidden, hidden, bias=False)
        self.candidate = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        input_gates, input_candidates = self.from_input(x).chunk(2, dim=-1)
        h = torch.zeros_like(input_gates[0])
        states = []
        for input_gate, input_candidate in zip(input_gates, input_candidates, strict=True):
            f = torch.sigmoid(input_gate + self.gate(h))
            c = torch.tanh(input_candidate + self.candidate(f * h))
            h = torch.lerp(h, c, f)
            states.append(h)
        return torch.stack(states)


def get_inputs():
    return [torch.randn(TIME, BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
