"""Where problems come from: a file, a class in a file, or a suite that ships with Kernelwright.

Nothing here runs a problem or imports torch: sources are read and parsed only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.syntax import bindings, parse, parse_expression, read_shapes, with_shape

_SUITES = Path(__file__).parent / "suites"


def from_spec(spec: str, *, inputs: str | None = None, init: str | None = None, shape: str | None = None) -> Problem:
    """The problem that `spec` names: `path.py`, `path.py:ClassName` or `suite/problem` (`core/rmsnorm`).

    Args:
        spec: what to read.
        inputs: a Python expression of forward's arguments (`torch.randn(64, 128), torch.randn(128)`); replaces the
            file's `get_inputs`.
        init: a Python expression of the constructor's arguments; replaces the file's `get_init_inputs`.
        shape: a label of the file's `SHAPES`, whose numbers are written into the source.

    Raises:
        UsageError: in one line, what is wrong and where.
    """
    name, origin, path, class_name = _locate(spec)
    source = _complete(_read(path, origin), origin, class_name, inputs, init)
    if shape is not None:
        source = with_shape(source, origin, shape)
    return Problem(name=name, source=source, origin=origin, shape=shape)


def reshaped(problem: Problem, label: str) -> Problem | None:
    """The problem at another shape of its `SHAPES`; None when it has no such label."""
    if label not in read_shapes(parse(problem.source, problem.origin), problem.origin):
        return None
    return replace(problem, source=with_shape(problem.source, problem.origin, label), shape=label)


def suites() -> list[str]:
    """Names of the suites that ship with Kernelwright."""
    return sorted(p.parent.name for p in _SUITES.glob("*/__init__.py"))


def suite(name: str) -> list[Problem]:
    """All problems of a suite, by name, each at its default shape. Raises UsageError for an unknown suite."""
    if name not in suites():
        raise UsageError(f"no suite {name!r}; known: {', '.join(suites())}")
    return [from_spec(f"{name}/{problem}") for problem in _problem_names(name)]


def _problem_names(suite_name: str) -> list[str]:
    return sorted(p.stem for p in (_SUITES / suite_name).glob("*.py") if p.stem != "__init__")


def _locate(spec: str) -> tuple[str, str, Path, str | None]:
    """(problem's name, origin for messages, file, class name or None)."""
    head, _, tail = spec.rpartition(":")
    if head.endswith(".py"):
        if not tail.isidentifier():
            raise UsageError(f"{spec}: {tail!r} is not a class name; write path.py:ClassName")
        return f"{Path(head).stem}.{tail}", head, Path(head), tail
    suite_name, _, problem = spec.partition("/")
    if suite_name in suites() and not spec.endswith(".py"):
        if problem not in _problem_names(suite_name):
            raise UsageError(f"{spec}: no such problem; {suite_name} has {', '.join(_problem_names(suite_name))}")
        return problem, spec, _SUITES / suite_name / f"{problem}.py", None
    return Path(spec).stem, spec, Path(spec), None


def _read(path: Path, origin: str) -> str:
    try:
        # utf-8-sig: a byte-order mark, as some editors write it, is no part of the source.
        return path.read_text(encoding="utf-8-sig")
    except IsADirectoryError as error:
        raise UsageError(f"{origin}: a folder; name one file in it") from error
    except FileNotFoundError as error:
        hint = "" if origin.endswith(".py") else f", and no problem of a suite ({', '.join(suites())})"
        raise UsageError(f"{origin}: no such file{hint}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{origin}: not UTF-8 text (byte {error.start})") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{origin}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _complete(source: str, origin: str, class_name: str | None, inputs: str | None, init: str | None) -> str:
    """`source`, with the names of the contract that the user gave beside it appended as text."""
    bound = bindings(parse(source, origin))
    added = []
    if class_name is not None:
        if class_name not in bound and "*" not in bound:
            raise UsageError(
                f"{origin}:1: no class {class_name}; the file defines {', '.join(sorted(bound)) or 'nothing'}"
            )
        if inputs is None and "get_inputs" not in bound:
            raise UsageError(
                f"{origin}:{bound[class_name]}: no get_inputs() for {class_name}; give --inputs 'torch.randn(...), ...'"
            )
        if class_name != "Model":
            added.append(f"Model = {class_name}\n")
        if init is None and "get_init_inputs" not in bound:
            init = "[]"
    if inputs is not None:
        added.append(_function("get_inputs", parse_expression(inputs, "--inputs")))
    if init is not None:
        added.append(_function("get_init_inputs", parse_expression(init, "--init")))
    return "\n\n".join([f"{source.rstrip()}\n", *added]) if added else source


def _function(name: str, items: list[str]) -> str:
    # The file may know torch by another name.
    return f"def {name}():\n    import torch\n\n    return [{', '.join(items)}]\n"
