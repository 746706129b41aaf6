"""A stand-in for a CUDA device: a candidate that asks for `cuda` gets tensors of another device, and is none the wiser.

On `meta` nothing is allocated or computed, so that a problem of any size passes through in milliseconds: that is how
the launches of a Triton candidate are found out without a GPU. On `cpu` the numbers are real: that is how Triton's
interpreter runs a candidate that was written for a GPU. In both the candidate sees `x.is_cuda` and `cuda:0`.

Only for a child process of ours: it replaces functions of `torch.cuda`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.stages.compile.target import multiprocessors, shared_limit_bytes

_CUDA = torch.device("cuda", 0)
_POINTER = 1 << 40
"""Stand-in address of a storage's first byte: aligned as a CUDA allocation is, which Triton specialises kernels on."""


class _Redirect(TorchFunctionMode):
    """Sends every device argument to the real device, and answers questions about the device as CUDA would."""

    def __init__(self, real: str) -> None:
        super().__init__()
        self.real = torch.device(real)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.cuda, torch.Tensor.cpu):
            return args[0]
        if func is torch.Tensor.get_device:
            return 0
        if func == torch.Tensor.device.__get__:
            return _CUDA
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if func is torch.Tensor.data_ptr and self.real.type == "meta":
            return _POINTER + args[0].storage_offset() * args[0].element_size()
        return func(*map(self._moved, args), **{k: self._moved(v) for k, v in (kwargs or {}).items()})

    def _moved(self, arg: Any) -> Any:
        names_device = isinstance(arg, torch.device) or (isinstance(arg, str) and re.fullmatch(r"cpu|cuda(:\d+)?", arg))
        return self.real if names_device else arg


@contextlib.contextmanager
def standin_device(real: str, capability: int) -> Iterator[None]:
    """Inside the block, `cuda` means the device `real` (`meta` or `cpu`), which new tensors live on by default too."""
    _replace_torch_cuda(capability)
    with torch.device(real), _Redirect(real):
        yield


def _replace_torch_cuda(capability: int) -> None:
    """Answer the questions that candidates ask `torch.cuda` before a launch."""
    major, minor = divmod(capability, 10)
    properties = SimpleNamespace(
        name=f"sm_{capability}",
        major=major,
        minor=minor,
        multi_processor_count=multiprocessors(capability),
        warp_size=32,
        shared_memory_per_block_optin=shared_limit_bytes(capability),
        max_threads_per_multi_processor=2048,
    )
    stream = SimpleNamespace(cuda_stream=0, device=_CUDA, synchronize=lambda: None)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device": lambda device: contextlib.nullcontext(),
        "synchronize": lambda device=None: None,
        "current_stream": lambda device=None: stream,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_name": lambda device=None: properties.name,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


def is_limit_of_standin(error: BaseException) -> bool:
    """Whether an exception tells of the stand-in (values of a `meta` tensor, a part of CUDA that is not there)."""
    return re.search(r"\bmeta\b|cuda|nvidia", str(error), re.IGNORECASE) is not None
