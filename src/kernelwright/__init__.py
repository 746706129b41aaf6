"""Kernelwright: give it a PyTorch module, get back a faster one, with a result that can be believed."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Archive",
    "Benched",
    "Budget",
    "EnvironmentFault",
    "Result",
    "UsageError",
    "Verified",
    "__version__",
    "bench",
    "optimize",
    "verify",
]

if TYPE_CHECKING:
    from kernelwright.agent.api import Budget, Result, bench, optimize, verify
    from kernelwright.agent.comparison import Benched
    from kernelwright.agent.verification import Verified
    from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
    from kernelwright.stages.archive import Archive

_HOMES = {
    "optimize": "kernelwright.agent.api",
    "verify": "kernelwright.agent.api",
    "bench": "kernelwright.agent.api",
    "Benched": "kernelwright.agent.comparison",
    "Budget": "kernelwright.agent.api",
    "Result": "kernelwright.agent.api",
    "Verified": "kernelwright.agent.verification",
    "Archive": "kernelwright.stages.archive",
    "EnvironmentFault": "kernelwright.kernelbench.errors",
    "UsageError": "kernelwright.kernelbench.errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: `import kernelwright` alone must not cost torch's two seconds."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'kernelwright' has no attribute {name!r}")
