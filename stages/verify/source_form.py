"""Which kernels a candidate's source defines, and for which back end, read from its syntax tree.

The back end is what the source defines, not what the candidate says. Words in comments, docstrings and messages define
nothing; a kernel's text that no loader of the file can reach defines nothing either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernelwright.stages.types import Backend, Check, Status
from kernelwright.stages.verify import foreign

_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
_EXTENSION = frozenset({"load_inline", "load_library", "cpp_extension"})
_CTYPES = frozenset({"ctypes", "CDLL", "cdll", "PyDLL", "CFUNCTYPE"})
_CUDA_LOADERS = frozenset({"_compile_kernel", "RawKernel", "RawModule"})
UNWATCHED = ("cffi", "cupy", "numba", "pycuda", "tilelang", "cutlass", "taichi", "warp", "jax")
"""Packages that run kernels by ways which the inspection does not see."""


@dataclass(frozen=True)
class SourceForm:
    """What a source defines. Empty for text that Python cannot parse."""

    kernels: Mapping[str, Backend] = field(default_factory=dict)
    """Kernels by name: Triton functions, `__global__` functions, and C++ functions that Python calls."""
    backends: frozenset[Backend] = frozenset()
    """Back ends that it defines a kernel of. One may be here without a name above: its text is put together at run
    time."""
    unwatched: tuple[str, ...] = ()
    """Packages that it imports whose kernels cannot be seen running."""
    library_calls: tuple[str, ...] = ()
    """Calls in its C++ and CUDA text of torch's operators and of vendor libraries that compute."""
    defines_model: bool = False
    """Whether a top-level name `ModelNew` is bound."""

    @property
    def backend(self) -> Backend:
        """The one back end to compile it by: what needs building comes first; TORCH when no kernel is defined."""
        order = (Backend.CUDA, Backend.CPP, Backend.TRITON)
        return next((b for b in order if b in self.backends), Backend.TORCH)


def read_form(source: str) -> SourceForm:
    """Read a candidate's source without running it."""
    try:
        tree = ast.parse(source)
    except _UNPARSABLE:
        return SourceForm()
    imports = imported_names(tree)
    kernels: dict[str, Backend] = dict.fromkeys(_triton_kernels(tree, imports), Backend.TRITON)
    backends = set(kernels.values())
    words = _words(tree, imports)
    packages = _packages(tree)
    texts = [text for text in string_texts(tree) if foreign.looks_foreign(text)]
    uses_extension = bool(words & _EXTENSION)
    if uses_extension or words & _CUDA_LOADERS or "cuda" in packages:
        kernels |= {name: Backend.CUDA for text in texts for name in foreign.cuda_kernels(text)}
    if uses_extension or words & _CTYPES:
        own = Backend.CUDA if any(foreign.cuda_kernels(t) for t in texts) else Backend.CPP
        kernels |= {name: own for text in texts for name in foreign.exported_functions(text) if name not in kernels}
    if _loads_extension(tree, imports) and not {Backend.CPP, Backend.CUDA} & set(kernels.values()):
        backends.add(_opaque_extension(tree))
    return SourceForm(
        kernels=kernels,
        backends=frozenset(backends | set(kernels.values())),
        unwatched=tuple(p for p in UNWATCHED if p in packages),
        library_calls=tuple(dict.fromkeys(name for text in texts for name in foreign.library_calls(text))),
        defines_model=_binds_model(tree),
    )


def claim_check(form: SourceForm, claimed: Backend | None) -> Check:
    """Whether the source defines a kernel of the back end that it is said to be of."""
    name = "back end as claimed"
    if claimed in (None, Backend.TORCH) or claimed in form.backends:
        return Check(name, passed=True, refutes=Status.STATIC_REJECT)
    if form.unwatched:
        detail = f"cannot be told: it imports {', '.join(form.unwatched)}"
        return Check(name, passed=True, detail=detail, refutes=Status.STATIC_REJECT)
    found = ", ".join(sorted(form.backends)) or "no kernel at all"
    detail = f"claimed to be of back end {claimed}, but the source defines {found}"
    return Check(name, passed=False, detail=detail, refutes=Status.STATIC_REJECT)


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Local name to the dotted name that it was imported from, wherever in the file that happens."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name: f"{node.module or ''}.{a.name}" for a in node.names}
    return found


def dotted(node: ast.AST, imports: Mapping[str, str]) -> str:
    """`torch.nn.functional.gelu` for `F.gelu`; empty for what is no plain name."""
    if isinstance(node, ast.Name):
        return imports.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, imports)
        return f"{base}.{node.attr}" if base else ""
    return ""


def string_texts(tree: ast.AST) -> Iterator[str]:
    """Every string of the program that is a value: docstrings and other bare strings are left out."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in bare:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            # What is filled in is a number or a type's name as a rule; its place must not end a word.
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "0" for v in node.values)


def _triton_kernels(tree: ast.AST, imports: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            if any(_is_jit(d.func if isinstance(d, ast.Call) else d, imports) for d in node.decorator_list):
                yield node.name
        elif isinstance(node, ast.Call) and _is_jit(node.func, imports):
            yield from (a.id for a in node.args if isinstance(a, ast.Name))
    for text in string_texts(tree):
        # A kernel's text that is written to a file, or executed, in place of standing in the file itself.
        if ".jit" in text and "triton" in text:
            inner = _parsed(text)
            yield from _triton_kernels(inner, {"triton": "triton", **imports, **imported_names(inner)})


def _is_jit(node: ast.AST, imports: Mapping[str, str]) -> bool:
    name = dotted(node, imports)
    return name.startswith("triton.") and name.rpartition(".")[2] == "jit"


def _parsed(text: str) -> ast.AST:
    try:
        return ast.parse(text)
    except _UNPARSABLE:
        return ast.Module(body=[], type_ignores=[])


def _words(tree: ast.AST, imports: Mapping[str, str]) -> set[str]:
    """Every name that the code uses, and every part of the dotted names that it imports."""
    found = {part for name in (*imports, *imports.values()) for part in name.split(".")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Import):
            found |= {part for alias in node.names for part in alias.name.split(".")}
    return found


def _packages(tree: ast.AST) -> set[str]:
    """Top-level packages that are imported anywhere in the file."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _loads_extension(tree: ast.AST, imports: Mapping[str, str]) -> bool:
    """Whether torch's extension loader is called, not only imported."""
    called = (dotted(node.func, imports) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(set(name.split(".")) & _EXTENSION for name in called)


def _opaque_extension(tree: ast.AST) -> Backend:
    """The back end of an extension whose text cannot be read, by the arguments that it is loaded with."""
    keywords = {k.arg: k.value for node in ast.walk(tree) if isinstance(node, ast.Call) for k in node.keywords}
    given = keywords.get("cuda_sources")
    empty = given is None or (isinstance(given, ast.List | ast.Tuple | ast.Constant) and not _content(given))
    names_cuda = any(text.endswith(".cu") for text in string_texts(tree))
    return Backend.CPP if empty and not names_cuda else Backend.CUDA


def _content(node: ast.List | ast.Tuple | ast.Constant) -> bool:
    return bool(node.value) if isinstance(node, ast.Constant) else bool(node.elts)


def _binds_model(tree: ast.Module) -> bool:
    """Whether running the file binds `ModelNew`, by a class, an assignment, an import, or inside a guard."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == "ModelNew":
            return True
        if isinstance(node, ast.Name) and node.id == "ModelNew" and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) in ("ModelNew", "*"):
            return True
        # `globals()["ModelNew"] = ...`, or text that is executed.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "ModelNew" in node.value:
            return True
    return False
