"""What C++ and CUDA text defines, found by reading it: enough for names, nothing that a verdict rests on.

A full parser is a compiler's work. What is missed here is found when the candidate runs (`sandbox/inspect`).
"""

from __future__ import annotations

import re

_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)|__cluster_dims__\s*\([^)]*\)")
_GLOBAL = re.compile(r"__global__[^;{}()]*?(\w+)\s*\(")
_EXTERN_C = re.compile(r'extern\s+"C"\s*(\{|[^;{}()]*?(\w+)\s*\()')
_DEFINITION = re.compile(r"(\w+)\s*\([^;{}()]*(?:\([^;{}()]*\)[^;{}()]*)*\)\s*(?:noexcept\s*)?\{")
_RETURNS_TENSOR = re.compile(r"\b(?:at|torch)::Tensor\s+(\w+)\s*\(")
_BINDING = re.compile(r'\b(?:m|module)\s*\.\s*(?:def|impl)\s*\(\s*"(\w+)')
_KEYWORDS = frozenset({"if", "for", "while", "switch", "catch", "return", "sizeof"})
_LIBRARY = re.compile(
    r"\b(?:at|torch)::(?:native::)?(\w+)\s*\(|\b(cublas\w+|cudnn\w+|cblas_\w+|dnnl_\w+|mkl_\w+)\s*\("
    r"|\.\s*(matmul|mm|bmm|addmm|softmax|conv2d|einsum)\s*\("
)
_ALLOCATION = frozenset(
    {
        "empty",
        "empty_like",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "full",
        "full_like",
        "from_blob",
        "empty_strided",
        "tensor",
        "scalar_tensor",
        "parallel_for",
        "parallel_reduce",
        "get_num_threads",
        "set_num_threads",
        "TensorOptions",
        "OptionalDeviceGuard",
        "Tensor",
        "autograd",
        "check",
        "device",
        "dtype",
    }
)


def looks_foreign(text: str) -> bool:
    """Whether a string is C++ or CUDA source: a body in braces behind something that is declared."""
    return "{" in text and any(mark in text for mark in ("__global__", 'extern "C"', "at::", "torch::", "#include"))


def without_comments(text: str) -> str:
    """The text without comments; strings stay, as `extern "C"` is one."""
    return _COMMENT_OR_STRING.sub(lambda m: m.group() if m.group().startswith('"') else " ", text)


def cuda_kernels(text: str) -> list[str]:
    """Names of the `__global__` functions, in order."""
    bare = _LAUNCH_BOUNDS.sub(" ", without_comments(text))
    return _unique(_GLOBAL.findall(bare))


def exported_functions(text: str) -> list[str]:
    """Names that are called from outside: `extern "C"` functions, functions on tensors, and what is bound by name."""
    bare = without_comments(text)
    found: list[str] = []
    for match in _EXTERN_C.finditer(bare):
        if match.group(2):
            found.append(match.group(2))
        else:
            found += [n for n in _DEFINITION.findall(_block(bare, match.end())) if n not in _KEYWORDS]
    found += _RETURNS_TENSOR.findall(bare) + _BINDING.findall(bare)
    return [name for name in _unique(found) if name not in cuda_kernels(text)]


def library_calls(text: str) -> list[str]:
    """Calls of torch's C++ operators and of vendor libraries that compute, as they are written."""
    names = ["".join(groups) for groups in _LIBRARY.findall(without_comments(text))]
    return [name for name in _unique(names) if name not in _ALLOCATION]


def _block(text: str, start: int) -> str:
    """The text from `start`, just behind an opening brace, to its closing one."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start:]


def _unique(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))
