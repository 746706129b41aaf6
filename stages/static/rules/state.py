"""State that is kept between calls: honest for packed weights and scratch memory, and what a cached answer needs."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelwright.stages.static.report import Finding
from kernelwright.stages.static.sites import Sites

_SETTING_UP = frozenset({"__init__", "__new__", "reset_parameters", "load_state_dict", "_load_from_state_dict"})
_CACHES = frozenset({"functools.cache", "functools.lru_cache", "functools.cached_property"})


def keeps_state(sites: Sites) -> Iterator[Finding]:
    """Attributes, globals and containers that a call writes, and cached functions."""
    module_names = {a.name for a in sites.assignments if not a.place.functions and not a.item}
    for one in sites.assignments:
        functions = one.place.functions
        if not functions or functions[-1] in _SETTING_UP:
            continue
        if one.name.startswith("self."):
            yield _found(one.place.line, f"{one.name} is written in {functions[-1]} and kept for the next call.")
        elif one.item and one.name in module_names:
            yield _found(
                one.place.line, f"An entry of {one.name} is written in {functions[-1]} and kept for the next call."
            )
    for place in sites.globals:
        yield _found(place.line, f"{place.functions[-1] if place.functions else 'The module'} writes a global.")
    for node, place in sites.functions:
        for decorator in node.decorators:
            called = decorator.decorator
            name = sites.names.dotted(called.func if isinstance(called, cst.Call) else called)
            if name in _CACHES and node.params.params:
                yield _found(place.line, f"Results of {node.name.value} are cached by its arguments.")


def _found(line: int, sentence: str) -> Finding:
    return Finding("state-between-calls", line, sentence)
