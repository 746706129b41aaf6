"""What reaches beyond the candidate's own file: other modules' names, the environment, files, network, processes."""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.stages.static.report import Finding
from kernelwright.stages.static.sites import Sites

_FLAGS = ("torch.backends.", "os.environ")
"""Assignments that `process` and `reaches_outside` speak of."""

_OUTSIDE: dict[str, tuple[str, ...]] = {
    "environment": ("os.environ", "os.getenv", "os.putenv", "os.unsetenv"),
    "files": (
        "open",
        "io.open",
        "torch.load",
        "torch.save",
        "pickle.load",
        "pickle.dump",
        "shutil.",
        "tempfile.",
        "os.remove",
    ),
    "network": ("socket.", "urllib.", "requests.", "http.", "ftplib.", "aiohttp."),
    "processes": (
        "subprocess.",
        "os.system",
        "os.fork",
        "os.exec",
        "os.spawn",
        "os.kill",
        "os._exit",
        "multiprocessing.",
    ),
    "interpreter": (
        "sys._getframe",
        "sys.modules",
        "sys.settrace",
        "gc.",
        "inspect.stack",
        "inspect.currentframe",
        "atexit.",
    ),
}
_FILE_METHODS = frozenset({"write_text", "write_bytes", "read_text", "read_bytes", "unlink"})


def patches(sites: Sites) -> Iterator[Finding]:
    """Assignments to names of other modules, and `setattr` on them."""
    foreign = {value.partition(".")[0] for value in sites.names.imports.values()}
    for one in sites.assignments:
        root = one.name.partition(".")[0]
        if "." in one.name and root in foreign and not one.name.startswith(_FLAGS):
            yield Finding("patches-foreign", one.place.line, f"{one.name} belongs to another module and is replaced.")
    for call in sites.calls:
        if call.name in ("setattr", "delattr") and call.node.args:
            target = sites.names.dotted(call.node.args[0].value)
            if target.partition(".")[0] in foreign:
                yield Finding("patches-foreign", call.place.line, f"An attribute of {target} is replaced.")


def reaches_outside(sites: Sites) -> Iterator[Finding]:
    """One finding a kind and line."""
    names = [(c.name, c.place) for c in sites.calls] + list(sites.attributes)
    seen: set[tuple[str, int]] = set()
    for name, place in names:
        for kind, marks in _OUTSIDE.items():
            if any(name == mark or (name.startswith(mark) and mark.endswith((".", "exec", "spawn"))) for mark in marks):
                seen.add((kind, place.line))
    seen |= {("files", call.place.line) for call in sites.calls if call.method in _FILE_METHODS}
    for kind, line in sorted(seen, key=lambda s: (s[1], s[0])):
        what = "looks into the running interpreter" if kind == "interpreter" else f"uses {kind}"
        yield Finding(f"uses-{kind}", line, f"This line {what}; while it is evaluated, a candidate has no need to.")
