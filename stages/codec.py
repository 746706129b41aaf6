"""JSON for the frozen dataclasses of `stages.types` and their like.

`to_json` gives plain dicts and lists; `from_json` rebuilds the value from the type's annotations. Floats that JSON
cannot hold (nan, inf) travel as the strings "nan", "inf" and "-inf", so that a file stays valid JSON.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_PLAIN = (str, int, bool, type(None))


def to_json(value: Any) -> Any:
    """Return `value` as dicts, lists, strings, numbers, booleans and None."""
    if type(value) in _PLAIN:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    kind: Any = type(value)
    names = _field_names(kind)
    if names is not None:
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def from_json(cls: type[T], data: Any) -> T:
    """Rebuild a `cls` from what `to_json` gave. Unknown keys are an error: they mean another version wrote the data."""
    value: T = _decode(cls, data)
    return value


def _decode(hint: Any, data: Any) -> Any:
    if hint is datetime:
        return datetime.fromisoformat(data)
    if hint is float:
        return float(data)
    if hint in (Any, str, int, bool):
        return data
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(hint), data)
    if origin is tuple:
        item, *rest = get_args(hint)
        if rest == [Ellipsis]:
            return tuple(_decode(item, v) for v in data)
        return tuple(_decode(h, v) for h, v in zip(get_args(hint), data, strict=True))
    if origin is list:
        return [_decode(get_args(hint)[0], v) for v in data]
    if origin is not None and issubclass(origin, Mapping):
        return {k: _decode(get_args(hint)[1], v) for k, v in data.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = _hints(hint)
        unknown = set(data) - set(hints)
        if unknown:
            raise ValueError(f"{hint.__name__} has no field {', '.join(sorted(unknown))}")
        return hint(**{k: _decode(hints[k], v) for k, v in data.items()})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    return data


@cache
def _field_names(cls: Any) -> tuple[str, ...] | None:
    return tuple(f.name for f in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _decode_union(options: tuple[Any, ...], data: Any) -> Any:
    if data is None:
        return None
    remaining = [h for h in options if h is not type(None)]
    if len(remaining) == 1:
        return _decode(remaining[0], data)
    return data
