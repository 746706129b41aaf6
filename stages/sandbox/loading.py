"""In the runner: import a file, build its class, and match its parameters with the reference's."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import pickle
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

TRACEBACK_LIMIT = 6000
"""Characters of a traceback that travel; the end is kept, where the reason stands."""


class Refused(Exception):
    """The module cannot be used, with a kind that the gate turns into a verdict."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def build(message: dict[str, Any]) -> torch.nn.Module:
    """Import the file at `path` and build `class_name` on the device. Raises Refused."""
    device = message["device"]
    module = import_file(Path(message["path"]))
    cls = getattr(module, message["class_name"], None)
    if cls is None:
        raise Refused("compile_error", f"the file defines no class {message['class_name']}")
    init_inputs = pickle.loads(Path(message["init"]).read_bytes())
    with torch.device(device):
        built = cls(*init_inputs)
    if not isinstance(built, torch.nn.Module):
        raise Refused("incorrect", f"{message['class_name']} is no torch.nn.Module")
    return built.to(device).train(message["training"])


def import_file(path: Path) -> ModuleType:
    """The module that a file defines. Raises Refused with the file's line."""
    source = path.read_text()
    try:
        ast.parse(source, filename=path.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f"{path.name}:{getattr(error, 'lineno', None) or 1}"
        raise Refused("compile_error", f"{where}: {getattr(error, 'msg', error)}") from None
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # triton and inspect look the module up by name, to read the kernel's source.
    sys.modules[path.stem] = module
    linecache.checkcache(str(path))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        if out_of_memory(error):
            raise
        raise Refused("compile_error", f"import failed: {describe(error)}") from None
    return module


def pair_parameters(
    own: dict[str, torch.Tensor], given: dict[str, torch.Tensor]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(own, given) tensors: by name and shape; by order and shape when the names differ. Raises Refused."""
    if own.keys() == given.keys():
        wrong = [n for n in own if own[n].shape != given[n].shape]
        if wrong:
            name = wrong[0]
            raise Refused(
                "incorrect",
                f"parameter {name} has shape {tuple(own[name].shape)}, the reference's has {tuple(given[name].shape)}",
            )
        return [(own[n], given[n]) for n in given]
    shapes_own, shapes_given = [t.shape for t in own.values()], [t.shape for t in given.values()]
    if shapes_own == shapes_given:
        return list(zip(own.values(), given.values(), strict=True))
    missing, extra = sorted(given.keys() - own.keys()), sorted(own.keys() - given.keys())
    raise Refused(
        "incorrect",
        "parameters match neither by name nor by order and shape"
        + (f"; missing: {', '.join(missing)}" if missing else "")
        + (f"; not in the reference: {', '.join(extra)}" if extra else ""),
    )


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out: torch's CPU allocator raises a plain RuntimeError for it."""
    kinds = torch.OutOfMemoryError | MemoryError
    return isinstance(error, kinds) or (isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error))


_NOT_THE_MODULES = (str(Path(__file__).parent), str(Path(__file__).resolve().parent), "<frozen importlib")


def describe(error: BaseException) -> str:
    """Type, message and the end of the traceback, from the first frame that is neither ours nor the importer's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_NOT_THE_MODULES):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    return f"{type(error).__name__}: {error}\n{text[-TRACEBACK_LIMIT:]}"[: 2 * TRACEBACK_LIMIT]
