"""A template: one way of writing a problem's kernels, with the parameters that a search may choose.

Families register themselves with `@family`; `stages.generate.templates_for` asks each registered family in turn. To add
an operator family, add one file beside `rowwise.py` and import it in `stages/generate/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.translate.graph import OpInfo
from kernelwright.stages.types import Backend, Candidate, Scalar


@dataclass(frozen=True)
class Template:
    """A way of writing the whole module. `render` is pure: the same choice gives the same source."""

    name: str
    """Unique for a problem, and stable from one run to the next: `cpp.fused`, `triton.fused`, `triton.gemm_library`."""
    backend: Backend
    summary: str
    """What it does, in a sentence for the report: which operators are fused, which stay library calls."""
    space: Mapping[str, Sequence[Scalar]]
    """Choices of each parameter, in ascending order where they have one. May be empty."""
    default: Mapping[str, Scalar]
    """The choice to try first."""
    library_ops: tuple[str, ...]
    """Operators of the graph that stay torch calls."""
    render: Callable[[Mapping[str, Scalar]], str]
    """Complete Python source, given a choice."""

    def candidate(self, choice: Mapping[str, Scalar], parents: tuple[str, ...] = ()) -> Candidate:
        """The candidate for one choice of the parameters."""
        settings = ", ".join(f"{k}={v}" for k, v in choice.items())
        return Candidate(
            source=self.render(choice),
            backend=self.backend,
            proposer="builtin",
            directive=f"{self.name} {settings}".strip(),
            parents=parents,
            template=self.name,
            tunables=dict(choice),
            library_ops=self.library_ops,
        )


Family = Callable[[Problem, OpInfo, str], list[Template]]
"""(problem, what translation found, device) -> the templates that the family offers, none when it does not apply."""
