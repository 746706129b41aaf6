"""The untrusted side: a fresh fork of the zygote that loads one module and calls it when told.

It holds neither expected values nor seeds, and nothing that it reports counts in a candidate's favour: the referee
reads output bytes, and its own clock. The same stub serves the baselines, so that both sides pay the same costs.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import os
import pickle
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.stages.sandbox import memory, tree
from kernelwright.stages.sandbox.protocol import Channel, ChannelClosed

TRACEBACK_LIMIT = 6000
"""Characters of a traceback that travel; the end is kept, where the reason stands."""


class _Refused(Exception):
    """The module cannot be used, with a kind that the gate turns into a verdict."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Runner:
    """Answers the referee's messages, one at a time."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.segments: dict[int, memory.Segment] = {}
        self.module: torch.nn.Module | None = None
        self.call: Any = None
        self.slots: dict[int, tuple[Any, ...]] = {}
        self.output: Any = None
        self.go: torch.cuda.Event | None = None
        self.done: torch.cuda.Event | None = None

    def serve(self) -> None:
        """Answer until the referee closes the channel."""
        while True:
            try:
                message, fds = self.channel.receive()
            except ChannelClosed:
                return
            try:
                answer = getattr(self, f"do_{message['do']}")(message, fds)
            except _Refused as refusal:
                answer = {"error": refusal.kind, "message": str(refusal)}
            except torch.OutOfMemoryError as error:
                answer = {"error": "oom", "message": str(error)[:TRACEBACK_LIMIT]}
            except Exception as error:  # noqa: BLE001 - the process boundary: whatever the module raises is reported
                answer = {"error": "crash", "message": _describe(error)}
            self.channel.send(answer)

    def do_attach(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Map shared segments: {"segments": [[id, handle], ...]}, descriptors in the same order for CPU segments."""
        remaining = iter(fds)
        for number, handle in message["segments"]:
            self.segments[number] = memory.attach(handle, next(remaining) if handle["device"] == "cpu" else None)
        return {}

    def do_detach(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Forget segments and every slot, so that a runner that lives long does not hold old memory."""
        self.slots.clear()
        self.output = None
        for number in message["segments"]:
            self.segments.pop(number, None)
        return {}

    def do_load(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Import a file, build its class, move it to the device; `compile_mode` wraps it in torch.compile."""
        device = message["device"]
        os.environ.update(message["environment"])
        _set_flags(device, message["threads"])
        module = _import_file(Path(message["path"]))
        cls = getattr(module, message["class_name"], None)
        if cls is None:
            raise _Refused("compile_error", f"the file defines no class {message['class_name']}")
        init_inputs = pickle.loads(Path(message["init"]).read_bytes())
        with torch.device(device):
            built = cls(*init_inputs)
        if not isinstance(built, torch.nn.Module):
            raise _Refused("incorrect", f"{message['class_name']} is no torch.nn.Module")
        self.module = built.to(device).train(message["training"])
        mode = message["compile_mode"]
        self.call = self.module if mode is None else torch.compile(self.module, mode=mode)
        return {"parameters": [[name, list(t.shape)] for name, t in self.module.state_dict().items()]}

    def do_parameters(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Copy parameters and buffers from shared memory, by name; by order and shape when the names differ."""
        assert self.module is not None
        own = self.module.state_dict(keep_vars=True)
        given = {name: self._place(place) for name, place in message["state"]}
        pairs = _pair_parameters(own, given)
        with torch.no_grad():
            for target, source in pairs:
                target.copy_(source)
        return {}

    def do_slot(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Name a set of arguments: later messages call the module on it by number."""
        tensors = [self._place(p) for p in message["tensors"]]
        self.slots[message["slot"]] = tuple(tree.unflatten(message["arguments"], tensors))
        return {}

    def do_run(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Call the module on each slot in turn; keep the last output for `fetch`."""
        self.output = None
        with torch.no_grad():
            if self.go is not None:
                self.go.wait()
            for slot in message["slots"]:
                self.output = None
                self.output = self.call(*self.slots[slot])
            if self.done is not None:
                self.done.record()
        return {}

    def do_describe(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The last output's structure, shapes and dtypes."""
        tensors: list[torch.Tensor] = []
        try:
            structure = tree.flatten(self.output, tensors)
        except TypeError as error:
            raise _Refused("incorrect", f"the output holds a value that {error}") from None
        kinds = [[list(t.shape), str(t.dtype).removeprefix("torch."), t.device.type] for t in tensors]
        return {"structure": structure, "tensors": kinds}

    def do_fetch(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Copy the last output's tensors to the places given, then let it go."""
        tensors: list[torch.Tensor] = []
        tree.flatten(self.output, tensors)
        for tensor, place in zip(tensors, message["tensors"], strict=True):
            self._place(place).copy_(tensor)
        if message["device"] == "cuda":
            torch.cuda.synchronize()
        self.output = None
        return {}

    def do_events(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Open the referee's `go` event and export our `done` event: the chain by which its stream times us."""
        self.go = torch.cuda.Event.from_ipc_handle(torch.cuda.current_device(), bytes.fromhex(message["go"]))
        self.done = torch.cuda.Event(enable_timing=False, interprocess=True)
        self.done.record()
        torch.cuda.synchronize()
        return {"done": bytes(self.done.ipc_handle()).hex()}

    def _place(self, fields: list[Any]) -> torch.Tensor:
        segment, offset, shape, stride, dtype = fields
        return memory.Place(segment, offset, tuple(shape), tuple(stride), dtype).view(self.segments)


def _set_flags(device: str, threads: int) -> None:
    """The precision contract's flags, set explicitly: torch's defaults, the same in every process."""
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True
    if device == "cuda":
        torch.cuda.init()


def _import_file(path: Path) -> ModuleType:
    source = path.read_text()
    try:
        ast.parse(source, filename=path.name)
    except SyntaxError as error:
        raise _Refused("compile_error", f"{path.name}:{error.lineno}: {error.msg}") from None
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # triton and inspect look the module up by name, to read the kernel's source.
    sys.modules[path.stem] = module
    linecache.checkcache(str(path))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - the process boundary
        raise _Refused("compile_error", f"import failed: {_describe(error)}") from None
    return module


def _pair_parameters(
    own: dict[str, torch.Tensor], given: dict[str, torch.Tensor]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    if own.keys() == given.keys():
        wrong = [n for n in own if own[n].shape != given[n].shape]
        if wrong:
            name = wrong[0]
            raise _Refused(
                "incorrect",
                f"parameter {name} has shape {tuple(own[name].shape)}, the reference's has {tuple(given[name].shape)}",
            )
        return [(own[n], given[n]) for n in own]
    shapes_own, shapes_given = [t.shape for t in own.values()], [t.shape for t in given.values()]
    if shapes_own == shapes_given:
        return list(zip(own.values(), given.values(), strict=True))
    missing, extra = sorted(given.keys() - own.keys()), sorted(own.keys() - given.keys())
    raise _Refused(
        "incorrect",
        "parameters match neither by name nor by order and shape"
        + (f"; missing: {', '.join(missing)}" if missing else "")
        + (f"; not in the reference: {', '.join(extra)}" if extra else ""),
    )


def _describe(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    # Frames of this stub say nothing to the reader; the module's own file starts after them.
    return f"{type(error).__name__}: {error}\n{text[-TRACEBACK_LIMIT:]}"[: 2 * TRACEBACK_LIMIT]


def main(channel: Channel) -> None:
    """Serve, then leave without running anything that the module registered for exit."""
    try:
        Runner(channel).serve()
    finally:
        os._exit(0)
