"""Judge what a candidate really ran: whether its own kernels do the work that it is given credit for.

The report comes from the candidate's own process (`sandbox/inspect`), so that it counts against the candidate only:
what it shows can refuse, and what it leaves out is never a merit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.stages.codec import from_json
from kernelwright.stages.types import Backend, Check, KernelShare, OwnWork, Status
from kernelwright.stages.verify.source_form import SourceForm, claim_check

REAL_PART = 0.1
"""Share of the device's time from which on library kernels carry a real part of the work; without a profiler, share of
the largest tensor's elements that an operator reads or writes."""

_VENDOR = ("cublas", "cudnn", "cblas_", "dnnl_", "mkl_")
"""Beginnings of names of functions that compute and that no dispatcher sees."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that one call put on the device."""

    name: str
    identifier: str
    """What its source calls it."""
    share: float
    launches: int
    own: bool
    library: bool
    moves: bool
    """Whether it only copies or fills."""


@dataclass(frozen=True)
class Fallback:
    """A line of the candidate at which an exception is handled, and what computed meanwhile in every call."""

    line: int
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """What an inspection found; `Inspection.report` says what each field holds."""

    operators: Mapping[str, int]
    elements: Mapping[str, int]
    largest: int
    kernels: tuple[Kernel, ...]
    launched: Mapping[str, int]
    loaded: tuple[str, ...]
    backends: Mapping[str, str]
    ablated: Mapping[str, bool | None]
    library_only: tuple[str, ...]
    fallbacks: tuple[Fallback, ...]
    copied: tuple[str, ...]
    compiled: int

    @property
    def matters(self) -> dict[str, bool | None]:
        """By launched kernel: whether the result breaks without it, False for a mere library call; None: unknown."""
        return {
            name: self.ablated.get(name) if name not in self.library_only else False for name in sorted(self.launched)
        }


def judge(
    report: dict[str, Any], form: SourceForm, *, claimed: Backend | None, no_library: bool
) -> tuple[OwnWork, tuple[Check, ...]]:
    """The evidence and the checks.

    Args:
        report: The answer of an inspection, untrusted.
        form: The candidate's source, as `read_form` read it.
        claimed: The back end that the candidate is said to be of; None when nothing is claimed.
        no_library: Whether the task forbids library calls that carry a real part of the work.
    """
    try:
        seen = from_json(Report, report)
        work = OwnWork(
            operators=dict(seen.operators),
            kernels=tuple(KernelShare(k.name, k.share, k.own) for k in seen.kernels),
            ablated=dict(seen.ablated),
        )
        checks = (
            claim_check(form, claimed),
            *_launched(seen, form, claimed),
            *_decoy(seen, form, claimed),
            *_copy(seen),
            _fallback(seen),
            _library(seen, form, no_library),
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        detail = f"the runner's report has no such form: {type(error).__name__}"
        return OwnWork(), (Check("inspection", passed=False, detail=detail, refutes=Status.TAMPERED),)
    return work, checks


def _launched(seen: Report, form: SourceForm, claimed: Backend | None) -> Iterator[Check]:
    """A back end that is claimed, or that the source defines a kernel of, must be seen running."""
    wanted = _wanted(form, claimed)
    if not (wanted or seen.loaded):
        return
    launched = _of(seen, seen.launched, claimed)
    detail = ""
    if not launched:
        names = ", ".join(sorted({*form.kernels, *seen.loaded})) or "none is named"
        detail = f"no {claimed or 'own'} kernel was launched in a call; the file has: {names}"
        if form.unwatched:
            detail = f"launches by {', '.join(form.unwatched)} cannot be seen"
    passed = bool(launched or form.unwatched)
    yield Check("own kernels run", passed, float(len(launched)), 1.0, detail, Status.STATIC_REJECT)


def _decoy(seen: Report, form: SourceForm, claimed: Backend | None) -> Iterator[Check]:
    """Some own kernel must matter: made a no-op, it must break the result."""
    matters = _of(seen, seen.matters, claimed)
    if not matters:
        return
    effective = [name for name, broken in matters.items() if broken]
    unknown = [name for name, broken in matters.items() if broken is None]
    wrappers = [name for name in matters if name in seen.library_only and seen.ablated.get(name) is not False]
    idle = [name for name, broken in matters.items() if broken is False and name not in wrappers]
    told = [
        f"{', '.join(idle)}: made a no-op, the output stays the same" if idle else "",
        f"{', '.join(wrappers)}: computes nothing but through the library" if wrappers else "",
        f"{', '.join(unknown)}: could not be made a no-op" if unknown else "",
    ]
    # A function that wraps the library is honest where no kernel is claimed.
    passed = bool(effective or unknown or (wrappers and claimed in (None, Backend.TORCH)))
    detail = ("" if passed else "decoy: ") + "; ".join(filter(None, told))
    yield Check("own kernels matter", passed, float(len(effective)), 1.0, detail, Status.STATIC_REJECT)


def _copy(seen: Report) -> Iterator[Check]:
    """Own kernels must do more than move what the library has computed."""
    if seen.launched:
        names = ", ".join(seen.copied)
        detail = f"decoy: the output is what {names} gave, only copied" if names else ""
        yield Check("own kernels compute", not names, len(seen.copied), 0.0, detail, Status.STATIC_REJECT)


def _fallback(seen: Report) -> Check:
    """The answer may not come from an exception's handler, call after call."""
    found = [
        f"line {one.line}: {', '.join(one.operators)}"
        for one in seen.fallbacks
        if any(_is_large(seen, name) for name in one.operators)
    ]
    detail = f"fallback: every call computes while it handles an exception ({'; '.join(found)})" if found else ""
    return Check("no fallback in a handler", not found, float(len(found)), 0.0, detail, Status.STATIC_REJECT)


def _library(seen: Report, form: SourceForm, no_library: bool) -> Check:
    """Which library calls carry a real part of the work; they fail the check only where the task forbids them."""
    share: float | None = None
    if seen.kernels:
        heavy = [k for k in seen.kernels if k.library and not k.own and not k.moves]
        share = sum(k.share for k in heavy)
        names: Sequence[str] = [f"{k.identifier} {k.share:.0%}" for k in heavy] if share >= REAL_PART else []
    else:
        names = [name for name in seen.operators if _is_large(seen, name)]
    vendor = [name for name in form.library_calls if name.startswith(_VENDOR)]
    compiled = ["torch.compile"] if seen.compiled else []
    found = [*names, *vendor, *compiled]
    return Check(
        "library calls",
        not (no_library and found),
        share,
        REAL_PART if no_library and share is not None else None,
        ", ".join(found),
        Status.STATIC_REJECT,
    )


def _wanted(form: SourceForm, claimed: Backend | None) -> bool:
    return bool(form.backends) or claimed not in (None, Backend.TORCH)


def _of(seen: Report, names: Mapping[str, Any], claimed: Backend | None) -> dict[str, Any]:
    """Those kernels that are of the claimed back end; all where none is claimed."""
    if claimed in (None, Backend.TORCH):
        return dict(names)
    return {name: value for name, value in names.items() if seen.backends.get(name, claimed) == claimed}


def _is_large(seen: Report, operator: str) -> bool:
    return seen.elements.get(operator, 0) >= REAL_PART * seen.largest
