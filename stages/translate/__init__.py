"""What a problem computes: its graph, its signature, its functional form, and what it must cost at least."""

from __future__ import annotations

from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.translate.cost import bytes_least, flops
from kernelwright.stages.translate.functional import functional
from kernelwright.stages.translate.graph import Graph, OpInfo
from kernelwright.stages.translate.signature import signature


def translate(problem: Problem) -> OpInfo:
    """Trace the problem's model on fake tensors and describe it; inputs of any size cost no memory.

    Raises UsageError, one line with file and reason, when the model or its inputs cannot be built or traced.
    """
    from kernelwright.kernelbench.contract import instantiate, load, without_values
    from kernelwright.stages.translate.capture import capture

    contract = load(problem)
    with without_values():
        try:
            model, inputs = instantiate(contract, "cpu", seed=0)
        except UsageError:
            # A constructor or get_inputs that reads values (`.item()`, numpy) needs real tensors; so does a true fault,
            # to be reported in torch's usual words.
            pass
        else:
            return describe(*capture(model, inputs))
    return describe(*capture(*instantiate(contract, "cpu", seed=0)))


def describe(graph: Graph, captured_by: str) -> OpInfo:
    """Work out everything of an `OpInfo` that follows from the graph."""
    return OpInfo(
        graph=graph,
        signature=signature(graph),
        functional=functional(graph),
        flops=flops(graph),
        bytes_least=bytes_least(graph),
        captured_by=captured_by,
    )
