"""KernelBench's contract, run: load a problem's source, build its model, draw its inputs, check that all of it works.

Whatever goes wrong in the user's code becomes a UsageError of one line that names the line of that code.
"""

from __future__ import annotations

import inspect
import linecache
import logging
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.kernelbench.problem import Precision, Problem
from kernelwright.kernelbench.syntax import Shapes, bindings, describe, parse, shapes_fault

FAKE_ABOVE_ELEMENTS = 2**28
"""Inputs with more elements than this in all (1 GiB of float32) are checked without being allocated."""

_NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)
"""What FakeTensorMode raises for code that it cannot follow without real values."""

_INPUT_STREAM = 0x9E3779B9
"""Inputs are drawn from `seed ^ _INPUT_STREAM`: from the model's own seed, a random weight and the first row of a
random input would be the same numbers. 32 bits, since torch's CPU generator uses no more of a seed."""


@dataclass(frozen=True)
class Contract:
    """What a problem's source defines."""

    model_class: type[torch.nn.Module]
    get_inputs: Callable[[], list[Any]]
    get_init_inputs: Callable[[], list[Any]]
    tolerance: float | None
    shapes: Shapes
    problem: Problem
    lines: Mapping[str, int]
    """Line of each top-level name."""
    precision: Precision = Precision.STRICT
    """What the result may be computed in: the source's `PRECISION`, or strict."""


def load(problem: Problem) -> Contract:
    """Run the problem's source in a fresh module. Raises UsageError with file and line for whatever is missing."""
    lines = bindings(parse(problem.source, problem.origin))
    namespace = _run(problem)

    def fault(name: str, what: str) -> UsageError:
        return UsageError(f"{problem.origin}:{lines.get(name, 1)}: {what}")

    if "Model" not in namespace:
        raise fault("Model", f"no class Model; another can be named as {problem.origin}:ClassName")
    for name in ("get_inputs", "get_init_inputs"):
        if name not in namespace:
            raise fault(name, f"no function {name}()")
    model_class = namespace["Model"]
    if not (isinstance(model_class, type) and issubclass(model_class, torch.nn.Module)):
        raise fault("Model", "Model is not a subclass of torch.nn.Module")
    for name in ("get_inputs", "get_init_inputs"):
        if not callable(namespace[name]):
            raise fault(name, f"{name} is not a function")
    tolerance = namespace.get("TOLERANCE")
    if tolerance is not None and not _positive_number(tolerance):
        raise fault("TOLERANCE", f"TOLERANCE is {tolerance!r}, not a positive number")
    precision = namespace.get("PRECISION", Precision.STRICT)
    if precision not in list(Precision):
        known = ", ".join(repr(str(p)) for p in Precision)
        raise fault("PRECISION", f"PRECISION is {precision!r}; known: {known}")
    shapes = namespace.get("SHAPES", {})
    if what := shapes_fault(shapes):
        raise fault("SHAPES", what)
    return Contract(
        model_class=model_class,
        get_inputs=namespace["get_inputs"],
        get_init_inputs=namespace["get_init_inputs"],
        tolerance=tolerance,
        shapes=shapes,
        problem=problem,
        lines=lines,
        precision=Precision(precision),
    )


def instantiate(contract: Contract, device: str, seed: int) -> tuple[torch.nn.Module, list[Any]]:
    """Build the model and draw its inputs on `device`; training mode stays as the model's constructor left it.

    The inputs are those of `draw_inputs` for the same seed. Seeds torch's global generators. Raises UsageError for what
    the user's code does wrong, EnvironmentFault when the device is absent or its memory too small.
    """
    target = _available(device)
    torch.manual_seed(seed)
    with torch.device(target):
        arguments = _call_for_list(contract, "get_init_inputs", "the constructor's arguments")
        _bind(contract, contract.model_class, arguments, "get_init_inputs", "Model")
        with _blaming(contract, "Model(...)", "Model"):
            model = contract.model_class(*arguments)
            # Parameters without values (FakeTensorMode) cannot be moved, so move only what needs it.
            if any(t.device.type != target.type for t in (*model.parameters(), *model.buffers())):
                model.to(target)
    return model, draw_inputs(contract, device, seed)


def draw_inputs(contract: Contract, device: str, seed: int) -> list[Any]:
    """Draw forward's arguments on `device`; the same seed gives the same values. Raises as `instantiate` does."""
    target = _available(device)
    torch.manual_seed(seed ^ _INPUT_STREAM)
    with torch.device(target):
        return _call_for_list(contract, "get_inputs", "forward's arguments")


def check(problem: Problem, device: str) -> None:
    """Build the model and run forward once, so that a bad problem ends here, with one line, before any work is spent.

    Inputs of more than `FAKE_ABOVE_ELEMENTS` elements are never allocated: shapes and types alone are followed, unless
    the code needs values. Raises UsageError, or EnvironmentFault as `instantiate` does.
    """
    contract = load(problem)
    if _input_elements(contract, device) > FAKE_ABOVE_ELEMENTS:
        try:
            with without_values():
                _check(contract, device)
            return
        except UsageError as error:
            if not isinstance(error.__cause__, _NEEDS_VALUES):
                raise
    _check(contract, device)


def _check(contract: Contract, device: str) -> None:
    model, inputs = instantiate(contract, device, seed=0)
    origin, target = contract.problem.origin, torch.device(device)
    for index, value in enumerate(inputs):
        for tensor in (leaf for leaf in _leaves(value) if isinstance(leaf, torch.Tensor)):
            if tensor.device.type != target.type:
                line = contract.lines.get("get_inputs", 1)
                raise UsageError(f"{origin}:{line}: input {index} of get_inputs is on {tensor.device}, not on {device}")
    _bind(contract, model.forward, inputs, "get_inputs", "forward")
    with torch.no_grad(), _blaming(contract, "forward", "Model"):
        output = model(*inputs)
    if what := _output_fault(output):
        raise UsageError(f"{origin}:{_forward_line(contract)}: {what}")


def _run(problem: Problem) -> dict[str, Any]:
    # A real module: dataclasses and pickle look a class's module up by name. linecache: tracebacks show the lines that
    # ran, which need not be those of a file.
    module = ModuleType(f"kernelwright_problem_{problem.hash[:12]}")
    module.__file__ = problem.origin
    sys.modules[module.__name__] = module
    linecache.cache[problem.origin] = (
        len(problem.source),
        None,
        problem.source.splitlines(keepends=True),
        problem.origin,
    )
    try:
        exec(compile(problem.source, problem.origin, "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        raise _usage_error(problem, error, "the file", 1) from error
    return module.__dict__


def _call_for_list(contract: Contract, name: str, what: str) -> list[Any]:
    with _blaming(contract, name, name):
        values = getattr(contract, name)()
    if not isinstance(values, list | tuple):
        where = f"{contract.problem.origin}:{contract.lines.get(name, 1)}"
        raise UsageError(f"{where}: {name} returns {type(values).__name__}, not a list or tuple of {what}")
    return list(values)


def _bind(contract: Contract, target: Callable[..., Any], arguments: list[Any], giver: str, taker: str) -> None:
    """Check that `target` takes the arguments: here the blame is on the pair, not on a line deep in torch."""
    signature = inspect.signature(target)
    try:
        signature.bind(*arguments)
    except TypeError as error:
        where = f"{contract.problem.origin}:{contract.lines.get(giver, 1)}"
        count = f"{len(arguments)} value{'' if len(arguments) == 1 else 's'}"
        names = ", ".join(signature.parameters)
        raise UsageError(f"{where}: {giver} gives {count} to {taker}({names}): {error}") from error


@contextmanager
def _blaming(contract: Contract, what: str, name: str) -> Iterator[None]:
    """Turn what the user's code raises into a UsageError, at `name`'s line when no line of theirs is in the stack."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EnvironmentFault(
            f"{contract.problem.origin}: {what} does not fit into the device's memory; choose a smaller shape"
        ) from error
    except (Exception, SystemExit) as error:
        raise _usage_error(contract.problem, error, what, contract.lines.get(name, 1)) from error


def _usage_error(problem: Problem, error: BaseException, what: str, line: int) -> UsageError:
    for frame, frame_line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == problem.origin:
            line = frame_line
    text = describe(error)
    return UsageError(f"{problem.origin}:{line}: {what} raises {type(error).__name__}{f': {text}' if text else ''}")


def _available(device: str) -> torch.device:
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"no device is called {device!r}; use cpu or cuda") from error
    if target.type == "cuda" and torch.cuda.device_count() <= (target.index or 0):
        raise EnvironmentFault(f"torch {torch.__version__} finds no device {device}; use --device cpu")
    return target


@contextmanager
def without_values() -> Iterator[None]:
    """Tensors made inside have a shape, a dtype and a device, and no memory."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    # It writes a traceback of its own for what becomes one line of ours.
    log.disabled = True
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        log.disabled = before


def _input_elements(contract: Contract, device: str) -> int:
    """Elements of all inputs together, found without allocating them; 0 when only a real call can tell."""
    _available(device)
    try:
        with without_values():
            inputs = draw_inputs(contract, device, seed=0)
    except UsageError:
        # Either a real fault, which the real call reports in torch's usual words, or code that needs values.
        return 0
    return sum(leaf.numel() for leaf in _leaves(inputs) if isinstance(leaf, torch.Tensor))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _output_fault(output: Any) -> str | None:
    leaves = list(_leaves(output))
    for leaf in leaves:
        if not (leaf is None or isinstance(leaf, torch.Tensor | int | float | complex)):
            where = "" if leaf is output else f" within {type(output).__name__}"
            return f"forward returns {type(leaf).__name__}{where}, not a tensor or a tuple, list or dict of tensors"
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return f"forward returns {type(output).__name__} without a tensor in it"
    return None


def _forward_line(contract: Contract) -> int:
    code = getattr(inspect.unwrap(contract.model_class.forward), "__code__", None)
    if code is not None and code.co_filename == contract.problem.origin:
        return int(code.co_firstlineno)
    return contract.lines.get("Model", 1)


def _positive_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
