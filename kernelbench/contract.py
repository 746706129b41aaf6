"""KernelBench's contract, loaded: run a problem's source and hand out its class and its input functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.kernelbench.problem import Problem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Contract:
    """What a problem's source defines."""

    model_class: type[torch.nn.Module]
    get_inputs: Callable[[], list[Any]]
    get_init_inputs: Callable[[], list[Any]]
    tolerance: float | None
    shapes: Mapping[str, Mapping[str, int]]


def load(problem: Problem) -> Contract:
    """Run the problem's source in a fresh namespace. Raises UsageError with file and line for whatever is missing."""
    namespace: dict[str, Any] = {"__name__": f"kernelwright_problem_{problem.hash[:12]}"}
    exec(compile(problem.source, problem.origin, "exec"), namespace)
    return Contract(
        model_class=namespace["Model"],
        get_inputs=namespace["get_inputs"],
        get_init_inputs=namespace["get_init_inputs"],
        tolerance=namespace.get("TOLERANCE"),
        shapes=namespace.get("SHAPES", {}),
    )
