"""The inspection itself: a few calls of a candidate, watched, and then without each of its kernels in turn."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelwright.stages.sandbox.inspect import cuda_hook, native, own_operators, profile, triton_hook
from kernelwright.stages.sandbox.inspect.ablation import Snapshot, differ, noise_between
from kernelwright.stages.sandbox.inspect.operators import OperatorWatch
from kernelwright.stages.sandbox.inspect.registry import Registry
from kernelwright.stages.sandbox.loading import Refused
from kernelwright.stages.types import Backend
from kernelwright.stages.verify.source_form import read_form

MOST_KERNELS = 24
"""Kernels that are switched off one by one; of those beyond, nothing is said."""
MOST_ENTRIES = 200
"""Entries of each list in the report, so that it fits a packet."""

_manual_seed = torch.manual_seed


class Inspection:
    """Watches the process from its making on. One for each runner, before the candidate's file is imported."""

    def __init__(self, path: Path, device: str) -> None:
        """`path` is the candidate's file, which Python can parse; `device` is `cpu` or `cuda`."""
        self.path = path
        self.device = device
        source = path.read_text()
        self.form = read_form(source)
        self.registry = Registry()
        self.compiled = 0
        """How often torch.compile was called."""
        native.watch(self.registry, self._native_backend)
        triton_hook.watch(self.registry)
        cuda_hook.watch(self.registry, source)
        own_operators.watch(self.registry, self._native_backend)
        self._watch_compile()

    def report(
        self, call: Callable[..., Any], arguments: Sequence[Any], others: Sequence[Any], *, profile: bool = True
    ) -> dict[str, Any]:
        """Call the candidate some dozen times on `arguments`, and on `others` between, which hold other values.

        Without `profile` there are no `kernels`: torch's profiler takes seconds to start.

        Keys of the report: `operators` (name to calls in one call of the candidate), `elements` (name to the largest
        tensor that it touched), `largest` (elements of the call's largest tensor), `kernels` (CUDA: dictionaries of
        name, share, launches, own, library, moves), `launched` (own kernel to launches in one call), `loaded` (own
        kernels that were seen being loaded), `backends` (own kernel to back end), `ablated` (own kernel to whether the
        result changes without it, or None), `library_only` (native functions that only call the library), `fallbacks`
        (dictionaries of line and operators that computed in an exception's handler in every call), `copied` (library
        operators whose result an output holds, moved there by something else), and `compiled`.
        Raises what the candidate raises, and Refused for an output that cannot be compared.
        """
        watch = OperatorWatch(self.registry, self._native_backend, self.path)
        session = _Session(call, arguments, others, watch)
        with torch.no_grad():
            session.call(arguments)
            session.call(others)
            handled: list[set[int]] = []
            copied: list[set[str]] = []
            snapshots = []
            for given in (arguments, others, arguments):
                self.registry.reset()
                watch.start()
                snapshots.append(session.call(given))
                handled.append(set(watch.handled))
                copied.append(session.copied)
            seen = _seen(watch, set.intersection(*handled), snapshots[-1])
            launched = {k.name: k.launches for k in self.registry.kernels.values() if k.launches}
            kernels = self._profile(session) if profile and self.device == "cuda" else []
            by_replay = {k["identifier"] for k in kernels if k["own"]} - set(launched)
            ablated = self._ablate(session, snapshots[0], snapshots[2], list(launched))
        known = self.registry.kernels.values()
        return seen | {
            "kernels": kernels[:MOST_ENTRIES],
            "launched": launched | dict.fromkeys(by_replay, 1),
            "loaded": sorted(k.name for k in known)[:MOST_ENTRIES],
            "backends": {k.name: k.backend for k in known if k.launches or k.name in launched},
            # What a captured graph replays cannot be switched off.
            "ablated": ablated | dict.fromkeys(by_replay, None),
            "library_only": sorted(k.name for k in known if k.library_only),
            "copied": sorted(set.intersection(*copied)),
            "compiled": self.compiled,
        }

    def _ablate(
        self, session: _Session, base: Snapshot, again: Snapshot, names: Sequence[str]
    ) -> dict[str, bool | None]:
        """Switch the kernels off one by one. A result that was kept from an earlier call must not pass for this one's,
        so that a call on other values comes before each. `base` and `again` are two results of the whole candidate."""
        found: dict[str, bool | None] = dict.fromkeys(names)
        noise = noise_between(base, again) if names else []
        for name in names[:MOST_KERNELS]:
            try:
                session.call(session.others)
            except Exception:  # noqa: BLE001 - an earlier ablation has left the device or the module unusable
                break
            kernel = self.registry.kernels[name]
            kernel.skipped = 0
            self.registry.off = name
            try:
                broken = differ(base, session.call(session.arguments), noise)
            except Exception:  # noqa: BLE001 - whatever the candidate raises without its kernel, it needs the kernel
                broken = True
            finally:
                self.registry.off = None
            found[name] = broken if kernel.skipped else None
        return found

    def _profile(self, session: _Session) -> list[dict[str, Any]]:
        session.plain()
        session.restore()
        # The call alone: putting values back launches kernels too.
        found = profile.device_kernels(functools.partial(session.function, *session.arguments))
        total = sum(one["microseconds"] for one in found) or 1.0
        own = set(self.form.kernels) | set(self.registry.kernels)
        for one in found:
            one["identifier"] = profile.identifier(one["name"])
            one["own"] = one["identifier"] in own
            one["library"] = one["library"] and not one["own"]
            one["share"] = one.pop("microseconds") / total
            one["name"] = one["name"][:MOST_ENTRIES]
        return found

    def _native_backend(self, name: str) -> str:
        """C++ and CUDA functions look alike when they are called; the source tells them apart."""
        backend = self.form.kernels.get(name, self.form.backend)
        return (backend if backend in (Backend.CPP, Backend.CUDA) else Backend.CPP).value

    def _watch_compile(self) -> None:
        original = torch.compile

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.compiled += 1
            return original(*args, **kwargs)

        torch.compile = counted


class _Session:
    """Calls of one candidate, each from the same state."""

    def __init__(
        self, call: Callable[..., Any], arguments: Sequence[Any], others: Sequence[Any], watch: OperatorWatch
    ) -> None:
        self.function = call
        self.arguments = arguments
        self.others = others
        self.watch = watch
        self.copied: set[str] = set()
        """Library operators whose result the last output holds, moved there by something else."""
        state = call.state_dict(keep_vars=True) if isinstance(call, torch.nn.Module) else {}
        self.state = list(state.values())
        self.kept = [(t, t.detach().clone()) for t in (*_tensors(arguments), *_tensors(others), *self.state)]

    def call(self, given: Sequence[Any]) -> Snapshot:
        """One watched call, and what it left."""
        self.restore()
        with self.watch:
            output = self.function(*given)
        try:
            self.copied = self.watch.copies.of(output)
            return Snapshot(output, [*_tensors(given), *self.state])
        except TypeError as error:
            raise Refused("incorrect", f"the output holds a value that {error}") from None

    def plain(self) -> None:
        """One call that nothing watches but the hooks."""
        self.restore()
        self.function(*self.arguments)

    def restore(self) -> None:
        """Put arguments, state and random numbers back to what they were."""
        for tensor, value in self.kept:
            tensor.detach().copy_(value)
        _manual_seed(0)


def _tensors(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    return [t for v in values for t in _tensors(v)] if isinstance(values, list | tuple) else []


def _seen(watch: OperatorWatch, lines: set[int], left: Snapshot) -> dict[str, Any]:
    """What the last watched call dispatched; `lines` are those where every call computed in a handler."""
    return {
        "operators": dict(watch.counts.most_common(MOST_ENTRIES)),
        "elements": dict(watch.elements.most_common(MOST_ENTRIES)),
        "largest": max([*watch.elements.values(), *(t.numel() for t in left.tensors)], default=0),
        "fallbacks": [{"line": n, "operators": sorted(watch.handled[n])} for n in sorted(lines)],
    }
