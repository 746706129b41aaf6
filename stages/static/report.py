"""What reading a source gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelwright.stages.types import Backend, Scalar
from kernelwright.stages.verify.source_form import SourceForm


@dataclass(frozen=True)
class Finding:
    """Something at a line that a reader should know of."""

    rule: str
    line: int
    sentence: str


@dataclass(frozen=True)
class TorchCall:
    """A call of the library that computes."""

    name: str
    """Dotted (`torch.nn.functional.gelu`); `Tensor.sum` for a method, `@` for the operator, `at::mm` in C++ text."""
    line: int


@dataclass(frozen=True)
class Tunable:
    """A number that may be chosen otherwise: a constant of the module, a configuration of an autotuner, or an option of
    a launch."""

    name: str
    value: Scalar
    line: int


@dataclass(frozen=True)
class SourceReport:
    """A candidate's source, as read."""

    form: SourceForm = field(default_factory=SourceForm)
    inline: bool = False
    """Whether it builds its own extension through torch.utils.cpp_extension."""
    compiles: bool = False
    """Whether it calls torch.compile."""
    torch_calls: tuple[TorchCall, ...] = ()
    tunables: tuple[Tunable, ...] = ()
    warnings: tuple[Finding, ...] = ()
    syntax_error: Finding | None = None

    @property
    def backends(self) -> frozenset[Backend]:
        """Back ends that it defines a kernel of; empty when it has only the library's."""
        return self.form.backends

    @property
    def kernels(self) -> Mapping[str, Backend]:
        """Its own kernels by name."""
        return self.form.kernels
