"""What changes the whole process: flags of torch, threads, streams, graphs; and precision given up."""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.stages.static.report import Finding
from kernelwright.stages.static.sites import Sites, keywords

_SETTERS = frozenset(
    {
        "torch.set_float32_matmul_precision",
        "torch.set_num_threads",
        "torch.set_num_interop_threads",
        "torch.set_default_dtype",
        "torch.set_default_device",
        "torch.set_flush_denormal",
        "torch.use_deterministic_algorithms",
        "torch.manual_seed",
        "torch.cuda.manual_seed",
        "torch.seed",
        "torch.set_rng_state",
        "torch.set_grad_enabled",
    }
)
_CONCURRENT = {
    "torch.cuda.Stream": "a stream of its own: its work must be joined before forward returns",
    "torch.cuda.ExternalStream": "a stream of its own: its work must be joined before forward returns",
    "torch.cuda.CUDAGraph": "a CUDA graph: it replays the addresses that it was captured with",
    "torch.cuda.graph": "a CUDA graph: it replays the addresses that it was captured with",
    "torch.cuda.make_graphed_callables": "a CUDA graph: it replays the addresses that it was captured with",
    "threading.Thread": "a thread: its work must be over when forward returns",
    "threading.Timer": "a thread: its work must be over when forward returns",
    "_thread.start_new_thread": "a thread: its work must be over when forward returns",
    "concurrent.futures.ThreadPoolExecutor": "threads: their work must be over when forward returns",
}
_NARROW = frozenset(
    {"torch.float16", "torch.half", "torch.bfloat16", "triton.language.float16", "triton.language.bfloat16"}
)
_FAST_MATH = frozenset({"-ffast-math", "-Ofast", "--use_fast_math", "-use_fast_math", "-funsafe-math-optimizations"})


def changes_flags(sites: Sites) -> Iterator[Finding]:
    """Global settings, which a candidate leaves changed for everybody."""
    for one in sites.assignments:
        if one.name.startswith("torch.backends."):
            yield Finding("global-flag", one.place.line, f"{one.name} is set for the whole process.")
    for call in sites.calls:
        if call.name in _SETTERS or call.name.startswith("torch.backends.") or call.name == "torch.cuda.set_stream":
            yield Finding("global-flag", call.place.line, f"{call.name} changes the whole process.")


def concurrency(sites: Sites) -> Iterator[Finding]:
    """Streams, graphs and threads."""
    for call in sites.calls:
        if call.name in _CONCURRENT:
            yield Finding("concurrency", call.place.line, f"This line makes {_CONCURRENT[call.name]}.")


def lowers_precision(sites: Sites) -> Iterator[Finding]:
    """Casts to half precision, TF32, and flags that let the compiler change results."""
    for call in sites.calls:
        if call.method in ("half", "bfloat16") and not call.node.args:
            yield _narrow(call.place.line, f"a cast by .{call.method}()")
        given = keywords(call.node)
        if "input_precision" in given and sites.names.text(given["input_precision"]) == "tf32":
            yield _narrow(call.place.line, "TF32 in a dot product")
        allow = given.get("allow_tf32")
        if allow is not None and getattr(allow, "value", "") == "True":
            yield _narrow(call.place.line, "TF32 in a dot product")
    for line, name in sorted({(place.line, name) for name, place in sites.attributes if name in _NARROW}):
        yield _narrow(line, name)
    for text, place in sites.strings:
        if text in _FAST_MATH:
            yield _narrow(place.line, f"{text}")


def _narrow(line: int, what: str) -> Finding:
    return Finding("lowers-precision", line, f"{what}: right only where the task's precision allows it.")
