"""Recognises sums of powers about a running maximum, which one pass can take together with the maximum.

The sum of exp(v - m) over the row, m the maximum of v, needs no pass of its own: where the maximum rises from
a to b, what was summed so far is multiplied by exp(a - b) (Milakov and Gimelshein, Online normalizer calculation for
softmax, 2018).
"""

from __future__ import annotations

from kernelwright.stages.generate.ir import FusedKernel, Op, Reduce
from kernelwright.stages.generate.scalar import is_float


def online_sums(kernel: FusedKernel) -> dict[str, str]:
    """The maximum that each such sum goes with, by the sum's name."""
    lines = {line.name: line for line in kernel.body}
    found: dict[str, str] = {}
    for total in kernel.body:
        if not isinstance(total, Reduce) or total.fn != "sum":
            continue
        power = lines.get(total.arg)
        centred = lines.get(str(power.args[0])) if isinstance(power, Op) and power.fn == "exp" else None
        if isinstance(centred, Op) and centred.fn == "sub":
            value, top = centred.args
            maximum = lines.get(str(top))
            fits = isinstance(maximum, Reduce) and maximum.fn == "max" and maximum.arg == value
            if fits and is_float(total.dtype):
                found[total.name] = str(top)
    return found
