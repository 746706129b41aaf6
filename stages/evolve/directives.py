"""Directives: what a proposal is asked to try next. Each is one entry of a table; a bandit learns which ones pay.

The nine are the stages through which Xe-Forge takes a kernel; here they are not walked in order but chosen, by what
limits the parent and by what has paid in this run. To add one, add an entry to DIRECTIVES.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kernelwright.stages.evolve import bandit
from kernelwright.stages.evolve.bandit import Pull
from kernelwright.stages.evolve.member import UNKNOWN, Member, gain_over_parent
from kernelwright.stages.types import Backend

_ANY: frozenset[str] = frozenset()
_ON_GPU = frozenset({Backend.TRITON, Backend.CUDA})
_PRODUCTS = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "einsum", "conv1d", "conv2d", "conv3d", "convolution",
     "scaled_dot_product_attention", "gru", "lstm"}
)  # fmt: skip


@dataclass(frozen=True)
class Directive:
    """One way to go. An empty set does not restrict."""

    name: str
    sentence: str
    """For the prompt: what to try."""
    bottlenecks: frozenset[str] = _ANY
    """What must limit the parent."""
    backends: frozenset[Backend] = frozenset()
    devices: frozenset[str] = _ANY
    operators: frozenset[str] = _ANY
    """Short names of aten operators (`linear`), of which the problem must have one."""

    def applies(self, bottleneck: str, backend: Backend, device: str, operators: Collection[str]) -> bool:
        """Whether it makes sense for such a parent. An unknown bottleneck excludes nothing."""
        return (
            (bottleneck == UNKNOWN or not self.bottlenecks or bottleneck in self.bottlenecks)
            and (not self.backends or backend in self.backends)
            and (not self.devices or device in self.devices)
            and (not self.operators or not self.operators.isdisjoint(_short(o) for o in operators))
        )


_TABLE = (
    Directive(
        "algorithmic",
        "Compute the same values with less work: another order of the operations, a closed form, one pass where there"
        " are two, partial results that are kept instead of computed again. It must hold for every input of these"
        " shapes, not only for the ones at hand.",
    ),
    Directive(
        "discovery",
        "Look for what the attempts so far have in common and drop it: another split of the work between threads,"
        " another loop order, another place for the data, a structure that nobody has tried here.",
    ),
    Directive(
        "dtype",
        "Look at every conversion and every intermediate's type: load in the stored type, convert once, accumulate in"
        " float32, keep narrow what is stored again, and let tensor cores work only where the error stays within the"
        " precision contract.",
        bottlenecks=frozenset({"memory", "compute"}),
    ),
    Directive(
        "fusion",
        "Take more of the graph into one kernel, so that intermediates stay in registers or in cache and fewer kernels"
        " are launched: prologues into loads, epilogues into stores, a reduction together with what uses it.",
        bottlenecks=frozenset({"memory", "launch", "latency"}),
    ),
    Directive(
        "memory_access",
        "Make each byte travel once, in wide and aligned accesses: neighbouring threads or lanes on neighbouring"
        " addresses, vector loads, tiles that are used again while they are in cache, streaming stores for what nobody"
        " reads again.",
        bottlenecks=frozenset({"memory", "latency"}),
    ),
    Directive(
        "descriptors",
        "Move tiles by block pointers or tensor descriptors instead of address arithmetic for each element, and let"
        " copies into shared memory run ahead of the computation.",
        bottlenecks=frozenset({"memory", "compute", "latency"}),
        backends=_ON_GPU,
        devices=frozenset({"cuda"}),
    ),
    Directive(
        "persistent",
        "Launch as many blocks as the device runs at once and let each loop over tiles in an order that suits the"
        " cache, so that prologues and tails overlap and uneven work spreads out.",
        bottlenecks=frozenset({"compute", "latency", "launch", "occupancy"}),
        backends=_ON_GPU,
        devices=frozenset({"cuda"}),
        operators=_PRODUCTS,
    ),
    Directive(
        "device_tuning",
        "Fit the kernel to this very device: tile and vector sizes by its registers, shared memory, caches and number"
        " of processors; its own instructions where they serve; occupancy as high as hides latency and no higher.",
    ),
    Directive(
        "autotuning",
        "Give the parameters that matter (tile sizes, warps, stages, unrolling, threads) names and a TUNABLES block"
        " with the values worth trying, and remove what is fixed without a reason; a search then picks the values.",
    ),
)

DIRECTIVES: dict[str, Directive] = {directive.name: directive for directive in _TABLE}
"""By name, in the order in which a person would go through them."""


def applicable(bottleneck: str, backend: Backend, device: str, operators: Collection[str]) -> list[Directive]:
    """The directives that make sense for a parent of this back end, so limited. `operators`: aten names."""
    return [d for d in DIRECTIVES.values() if d.applies(bottleneck, backend, device, operators)]


def choose(
    bottleneck: str,
    backend: Backend,
    device: str,
    operators: Collection[str],
    history: Sequence[Member],
    seed: str,
) -> Directive:
    """The directive for a proposal. `seed` names its place (`7/3/0`: the run's seed, generation, slot)."""
    arms = [d.name for d in applicable(bottleneck, backend, device, operators)]
    return DIRECTIVES[bandit.choose(arms, pulls(history), random.Random(f"directive/{seed}"))]


def pulls(history: Sequence[Member]) -> list[Pull]:
    """What following each directive has gained over the parent, in the order of the history."""
    by_hash = {member.hash: member for member in history}
    found = []
    for member in history:
        gain = gain_over_parent(member, by_hash)
        if member.directive in DIRECTIVES and gain is not None:
            found.append(Pull(member.directive, gain))
    return found


def _short(operator: str) -> str:
    """`linear` of `aten.linear.default`."""
    parts = operator.split(".")
    return parts[1] if len(parts) > 1 else operator
