"""The untrusted side: a fresh fork of the zygote that loads one module and calls it when told.

It holds neither expected values nor seeds, and nothing that it reports counts in a candidate's favour: the referee
reads output bytes, and its own clock. The same stub serves the baselines, so that both sides pay the same costs.

There are no phases. Whatever the referee is about, the runner sees the same series of messages: `begin`, some `call`s,
perhaps a `fetch` of an output that it kept. Which calls are timed, and which outputs are compared, it is not told.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.stages.profile import ncu, static, torchprof
from kernelwright.stages.sandbox import confine, memory, poison, prebuilt, resources, tree, view, watch, witness
from kernelwright.stages.sandbox.inspect import Inspection
from kernelwright.stages.sandbox.loading import Refused, build, describe, out_of_memory, pair_parameters
from kernelwright.stages.sandbox.protocol import Channel, ChannelClosed

KEPT_OUTPUTS = 2
"""Outputs of the latest calls that stay alive: the referee may ask for any of them, and one that a later call
overwrites is found out."""


RETOLD = frozenset({"start", "attach", "load", "state", "slot"})
"""Messages that make a process ready to call the module."""


class Runner:
    """Answers the referee's messages, one at a time."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.device = "cpu"
        self.segments: dict[int, memory.Segment] = {}
        self.module: torch.nn.Module | None = None
        self.call: Any = None
        self.file: ModuleType | None = None
        self.inspection: Inspection | None = None
        self.marks: torchprof.Marks | None = None
        self.slots: dict[int, tuple[Any, ...]] = {}
        self.given_state: dict[str, torch.Tensor] = {}
        self.outputs: deque[tuple[int, Any]] = deque(maxlen=KEPT_OUTPUTS)
        self.sizes: set[int] = set()
        self.random_state: list[Any] = []
        self.witness: witness.Witness | None = None
        self.told: list[dict[str, Any]] = []
        """The messages that a process like this one would have to be told first."""
        self.loaded: Any = None
        """What `call` was when the module had been loaded."""
        self.go: torch.cuda.Event | None = None
        self.done: torch.cuda.Event | None = None

    def serve(self) -> None:
        """Answer until the referee closes the channel."""
        while True:
            try:
                message, fds = self.channel.receive()
            except ChannelClosed:
                return
            if message["do"] in RETOLD:
                self.told.append(message)
            try:
                answer = getattr(self, f"do_{message['do']}")(message, fds)
            except Refused as refusal:
                answer = {"error": refusal.kind, "message": str(refusal)}
            except Exception as error:  # noqa: BLE001 - the process boundary: whatever the module raises is reported
                answer = {"error": "oom" if out_of_memory(error) else "crash", "message": describe(error)}
            if "error" in answer and (late := prebuilt.missed()):
                answer = {"error": prebuilt.LATE, "message": f"{late}\n{answer['message']}"}
            self.channel.send(answer)

    def do_attach(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Map shared segments: {"segments": [[id, handle], ...]}, descriptors in the same order for CPU segments."""
        remaining = iter(fds)
        for number, handle in message["segments"]:
            self.segments[number] = memory.attach(handle, next(remaining) if handle["device"] == "cpu" else None)
        return {}

    def do_detach(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Forget slots and segments, so that a runner that lives long does not hold old memory."""
        for slot in message["slots"]:
            self.slots.pop(slot, None)
        self.outputs.clear()
        for number in message["segments"]:
            self.segments.pop(number, None)
        return {}

    def do_start(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Let the driver find the device; a candidate's process has not begun to use it then, one of ours has."""
        _find_device(message["device"])
        if message["device"] == "cuda" and confine.phase is confine.Phase.TRUSTED:
            torch.cuda.synchronize()
        return {}

    def do_triton_driver(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Compile the library by which Triton speaks to the CUDA driver, into a cache folder."""
        os.environ["TRITON_CACHE_DIR"] = message["folder"]
        from triton.backends.nvidia.driver import CudaUtils

        CudaUtils()
        return {}

    def do_load(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Import a file, build its class, move it to the device; `compile_mode` wraps it in torch.compile."""
        self.device = message["device"]
        if confine.phase is confine.Phase.RUN:
            view.take_caches(confine.caches)
        os.environ.update(message["environment"])
        _set_flags(self.device, message["threads"], message["allow_tf32"])
        self.random_state = _random_state(self.device)
        if confine.phase is not confine.Phase.TRUSTED:
            prebuilt.install(confine.caches)
            watch.install(message["path"], confine.phase)
            if message["inspect"]:
                self.inspection = Inspection(Path(message["path"]), self.device)
            if message.get("profile"):
                self.marks = torchprof.mark(Path(message["path"]).read_text())
            self.witness = witness.Witness()
        self.module = build(message)
        self.file = sys.modules.get(Path(message["path"]).stem)
        mode = message["compile_mode"]
        self.call = self.loaded = self.module if mode is None else torch.compile(self.module, mode=mode)
        return {}

    def do_witness(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """What the module was seen doing and has replaced, and the global flags that it leaves."""
        changes = [] if self.witness is None else [*self.witness.changes(), *self._changes()]
        return {"seen": watch.seen(), "changes": changes, "flags": witness.flags()}

    def do_state(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Take parameters and buffers from shared memory, by name; by order and shape when the names differ."""
        self.given_state = {name: self._place(place) for name, place in message["state"]}
        self._restore()
        return {}

    def do_slot(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Name a set of arguments: later messages call the module on it by number."""
        tensors = [self._place(p) for p in message["tensors"]]
        self.sizes.update(t.numel() * t.element_size() for t in tensors)
        self.slots[message["slot"]] = tuple(tree.unflatten(message["arguments"], tensors))
        return {}

    def do_begin(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Let kept outputs go, put random state (and, if told, parameters and buffers) back, poison free memory."""
        self.outputs.clear()
        if message["restore"]:
            self._restore()
        _set_random_state(self.random_state, self.device)
        poison.free_pool(self.sizes, self.device)
        if self.device == "cuda":
            torch.cuda.synchronize()
        return {}

    def do_call(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Call the module on each slot in turn."""
        with torch.no_grad():
            if self.go is not None:
                self.go.wait()
            for slot in message["slots"]:
                self.outputs.append((slot, self.call(*self.slots[slot])))
        return {}

    def do_end(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Mark the end of the device's work so far, for the referee's stream to wait for."""
        if self.done is not None:
            self.done.record()
        return {}

    def do_fence(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Wait for everything that this process has put on the device, on whatever stream."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        return {}

    def do_describe(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """A kept output's structure, shapes and dtypes, and which argument shares its memory (`back` 1: the latest)."""
        tensors: list[torch.Tensor] = []
        slot, output = self.outputs[-message["back"]]
        try:
            structure = tree.flatten(output, tensors)
        except TypeError as error:
            raise Refused("incorrect", f"the output holds a value that {error}") from None
        self.sizes.update(t.numel() * t.element_size() for t in tensors)
        kinds = [[list(t.shape), str(t.dtype).removeprefix("torch."), t.device.type] for t in tensors]
        arguments: list[torch.Tensor] = []
        tree.flatten(list(self.slots[slot]), arguments)
        return {
            "structure": structure,
            "tensors": kinds,
            "aliases": [tree.alias(t, arguments) for t in tensors],
            "shared": tree.shared(tensors),
        }

    def do_fetch(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Copy a kept output's tensors to the places given."""
        tensors: list[torch.Tensor] = []
        tree.flatten(self.outputs[-message["back"]][1], tensors)
        for tensor, place in zip(tensors, message["tensors"], strict=True):
            self._place(place).copy_(tensor)
        if self.device == "cuda":
            torch.cuda.synchronize()
        return {}

    def do_fetch_state(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Copy the module's parameters and buffers, as they are now, to the places given."""
        assert self.module is not None
        given = {name: self._place(place) for name, place in message["state"]}
        with torch.no_grad():
            for own, target in pair_parameters(self.module.state_dict(keep_vars=True), given):
                target.copy_(own)
        if self.device == "cuda":
            torch.cuda.synchronize()
        return {}

    def do_events(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Open the referee's `go` event and export our `done` event: the chain by which its stream times us."""
        self.go = torch.cuda.Event.from_ipc_handle(torch.cuda.current_device(), bytes.fromhex(message["go"]))
        self.done = torch.cuda.Event(enable_timing=False, interprocess=True)
        self.done.record()
        torch.cuda.synchronize()
        return {"done": bytes(self.done.ipc_handle()).hex()}

    def do_graph(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Capture one call on a slot as a CUDA graph; `do_call` then replays it, whatever slots it names."""
        arguments = self.slots[message["slot"]]
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            kept = self.call(*arguments)

        def replay(*ignored: Any) -> Any:
            graph.replay()
            return kept

        self.call = replay
        return {}

    def do_inspect(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Look into the module: what runs, and whether its own kernels matter, on two slots with different values."""
        assert self.inspection is not None
        arguments, others = self.slots[message["slot"]], self.slots[message["other"]]
        return self.inspection.report(self.call, arguments, others, profile=message["profile"])

    def do_profile(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """What one call on a slot runs, by torch's profiler."""
        assert self.marks is not None
        arguments = self.slots[message["slot"]]
        with torch.no_grad():
            return torchprof.record(lambda: self.call(*arguments), self.device, self.marks)

    def do_counters(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Hardware counters of one call on a slot, made by another process like this one."""
        return ncu.record(self.told, message["slot"], Path.cwd(), message["limit_s"])

    def do_disassemble(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """What compilers have left in a folder. For a process that has loaded nothing."""
        return static.record(Path(message["folder"]), message["device"])

    def do_resources(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """What the Triton kernels that the file defines, and that have been launched, need of the device."""
        return {"resources": resources.launched(self.file) if self.file else []}

    def _changes(self) -> list[str]:
        """What was put in the place of this object's own parts."""
        kinds = {"outputs": deque, "slots": dict, "segments": dict, "given_state": dict, "channel": Channel}
        found = [
            f"the sandbox's {name} was replaced" for name, kind in kinds.items() if type(vars(self)[name]) is not kind
        ]
        found += [f"the sandbox's {name} was replaced" for name in vars(self) if name in dir(Runner)]
        if self.call is not self.loaded:
            found.append("the sandbox's call of the module was replaced")
        return found

    def _restore(self) -> None:
        assert self.module is not None
        with torch.no_grad():
            for target, source in pair_parameters(self.module.state_dict(keep_vars=True), self.given_state):
                target.copy_(source)

    def _place(self, fields: list[Any]) -> torch.Tensor:
        segment, offset, shape, stride, dtype = fields
        return memory.Place(segment, offset, tuple(shape), tuple(stride), dtype).view(self.segments)


def _set_flags(device: str, threads: int, allow_tf32: bool) -> None:
    """The precision contract's flags, set explicitly: torch's defaults unless the contract is TF32."""
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = allow_tf32
    torch.backends.cudnn.allow_tf32 = True
    _find_device(device)
    if _QUEUES in os.environ:
        torch.cuda.current_stream().synchronize()
        del os.environ[_QUEUES]


_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"


def _find_device(device: str) -> None:
    """Initialise CUDA; in the build phase, for a context with one hardware queue in place of eight.

    Contexts are made one after the other, however many processes ask: on an H200 0.13 s each, and 0.04 s with one
    queue; they end in 0.06 and 0.02 s. Nothing is timed in the build phase. The driver reads the variable before the
    context exists, and the candidate, which is loaded afterwards, does not find it.
    """
    if device == "cuda":
        if confine.phase is confine.Phase.BUILD:
            os.environ[_QUEUES] = "1"
        torch.cuda.init()


def _random_state(device: str) -> list[Any]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device == "cuda" else [])]


def _set_random_state(states: list[Any], device: str) -> None:
    torch.set_rng_state(states[0])
    if device == "cuda":
        torch.cuda.set_rng_state(states[1])


def main(channel: Channel) -> None:
    """Serve, then leave without running anything that the module registered for exit."""
    try:
        Runner(channel).serve()
    finally:
        os._exit(0)
