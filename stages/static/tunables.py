"""Numbers in a source that a search may choose otherwise."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from kernelwright.stages.static.report import Tunable
from kernelwright.stages.static.sites import Sites, keywords
from kernelwright.stages.types import Scalar

_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})


def tunables(sites: Sites) -> tuple[Tunable, ...]:
    """Constants of the module in capitals, configurations of autotuners, and what a launch names in capitals."""
    return tuple(
        sorted({*_constants(sites), *_launches(sites), *_configurations(sites)}, key=lambda t: (t.line, t.name))
    )


def _constants(sites: Sites) -> Iterator[Tunable]:
    for one in sites.assignments:
        value = _number(one.value)
        if value is not None and not one.place.functions and not one.item and one.name.isupper():
            yield Tunable(one.name, value, one.place.line)


def _launches(sites: Sites) -> Iterator[Tunable]:
    """`kernel[grid](x, y, BLOCK=1024, num_warps=8)`."""
    for call in sites.calls:
        if isinstance(call.node.func, cst.Subscript):
            for name, node in keywords(call.node).items():
                value = _number(node)
                if value is not None and (name in _OPTIONS or name.isupper()):
                    yield Tunable(name, value, call.place.line)


def _configurations(sites: Sites) -> Iterator[Tunable]:
    """`triton.Config({"BLOCK": 1024}, num_warps=8)`."""
    for call in sites.calls:
        if call.name != "triton.Config":
            continue
        for name, node in keywords(call.node).items():
            value = _number(node)
            if value is not None:
                yield Tunable(name, value, call.place.line)
        for argument in call.node.args:
            if isinstance(argument.value, cst.Dict):
                for element in argument.value.elements:
                    if isinstance(element, cst.DictElement):
                        value, key = _number(element.value), sites.names.text(element.key)
                        if value is not None and key is not None:
                            yield Tunable(key, value, call.place.line)


def _number(node: cst.BaseExpression | None) -> Scalar | None:
    if isinstance(node, cst.Integer | cst.Float):
        value = ast.literal_eval(node.value)
        return value if isinstance(value, int | float) else None
    if isinstance(node, cst.Name) and node.value in ("True", "False"):
        return node.value == "True"
    return None
