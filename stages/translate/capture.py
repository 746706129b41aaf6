"""Trace a module into a `Graph`: by `torch.export`, and where that refuses, by `make_fx` first.

Export's first graph keeps composite operators whole (`aten.rms_norm`, `aten.linear`, `aten.softmax.int`). Only a
forward that writes in place, or that switches gradients off, is rewritten to a functional graph by
`run_decompositions({})`, whose empty table still keeps every composite operator that neither aliases nor mutates.
"""

from __future__ import annotations

import io
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.translate.convert import DEPENDS_ON_VALUES, Unsupported, to_graph
from kernelwright.stages.translate.graph import Graph, InputKind
from kernelwright.stages.translate.simplify import simplify
from kernelwright.stages.translate.trace import argument_positions, by_export, by_fx, run_on_fakes

if TYPE_CHECKING:
    import torch


def capture(model: torch.nn.Module, inputs: Sequence[Any]) -> tuple[Graph, str]:
    """Return the graph of `model(*inputs)`, and what traced it: `export` or `fx`.

    Works on real tensors, and under an active FakeTensorMode on fake ones: nothing is computed or allocated either
    way. Raises UsageError, one line with file and reason, when the module cannot be written as a straight line of
    operators (a branch on a tensor's values, an output that is no tensor, an error of its own).
    """
    positions = argument_positions(model, inputs)
    with _quiet(), _attributes_kept(model) as reassigned:
        try:
            # The user's forward runs inside: it, export and make_fx may raise anything.
            graph, captured_by = simplify(to_graph(by_export(model, inputs, positions))), "export"
        except Exception:  # noqa: BLE001
            try:
                graph, captured_by = simplify(to_graph(by_fx(model, inputs, positions))), "fx"
            except Exception as fault:
                raise UsageError(f"{_where(model, fault)}: {type(model).__name__} {_reason(fault)}") from fault
        constants = {i.target for i in graph.inputs if i.kind is InputKind.CONSTANT}
        if constants:
            # Export takes back what forward assigned to `self`: a plain call shows it.
            run_on_fakes(model, inputs)
        hidden = constants & reassigned()
    if hidden:
        what = f"keeps its state in {', '.join(sorted(hidden))}, which is no registered buffer"
        raise UsageError(f"{_where(model, None)}: {type(model).__name__} {what}")
    return graph, captured_by


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch, which prints graphs and logs tracebacks for what becomes one line of ours."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _attributes_kept(model: torch.nn.Module) -> Iterator[Callable[[], set[str]]]:
    """Undo what forward assigns to modules, so that no tensor of the trace stays there.

    Gives a function that names the attributes that stand reassigned, by their dotted paths.
    """
    before = [(path, module, dict(vars(module))) for path, module in model.named_modules()]

    def reassigned() -> set[str]:
        return {
            f"{path}.{name}".removeprefix(".")
            for path, module, attributes in before
            for name, value in attributes.items()
            if vars(module).get(name) is not value
        }

    try:
        yield reassigned
    finally:
        for _, module, attributes in before:
            vars(module).clear()
            vars(module).update(attributes)


def _where(model: torch.nn.Module, fault: BaseException | None) -> str:
    """`file:line` of the module's own code in the traceback, or the place where its forward is defined."""
    code = type(model).forward.__code__
    lines = [
        frame.lineno
        for error in _chain(fault)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == code.co_filename and frame.lineno
    ]
    return f"{code.co_filename}:{lines[-1] if lines else code.co_firstlineno}"


def _reason(fault: BaseException) -> str:
    if isinstance(fault, Unsupported):
        return str(fault)
    if any(
        "DataDependent" in type(error).__name__ or "DynamicOutput" in type(error).__name__ for error in _chain(fault)
    ):
        return DEPENDS_ON_VALUES
    first_line = next(iter(str(fault).strip().splitlines()), "")
    return f"cannot be traced: {type(fault).__name__}: {first_line}"


def _chain(fault: BaseException | None) -> Iterator[BaseException]:
    while fault is not None:
        yield fault
        fault = fault.__cause__ or fault.__context__
