"""Who proposes in a run: the names that `--proposer` takes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kernelwright.agent.llm.budget import Limits
from kernelwright.agent.llm.models import parse_models
from kernelwright.agent.llm.prices import load_prices
from kernelwright.agent.proposers.base import Context, Proposer
from kernelwright.agent.proposers.builtin import BuiltinProposer
from kernelwright.agent.proposers.endpoint import ModelSource
from kernelwright.agent.proposers.handoff import HandoffSource
from kernelwright.agent.proposers.mixed import MixedProposer
from kernelwright.agent.proposers.source import Source
from kernelwright.agent.proposers.written import WrittenProposer
from kernelwright.agent.settings import RunSettings
from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.archive import Archive
from kernelwright.stages.archive.retrieve import Hit, retrieve
from kernelwright.stages.measure import devices

NAMES = ("builtin", "llm", "handoff")
RETRIEVED = 2
"""Winners of other problems that a prompt shows at most."""


def check(settings: RunSettings) -> None:
    """Raises UsageError for what no run could begin with."""
    for name in settings.proposer:
        if name not in NAMES:
            raise UsageError(f"--proposer {name}: unknown; use {', '.join(NAMES)}, or several with commas between")
    if len(set(settings.proposer)) < len(settings.proposer):
        raise UsageError(f"--proposer {','.join(settings.proposer)}: a name comes twice")
    if "llm" in settings.proposer:
        models = parse_models(settings.models)
        prices = load_prices(settings.prices)
        if settings.budget_usd is not None:
            prices.require(models.all)
    elif settings.models or settings.budget_usd is not None or settings.budget_tokens is not None:
        raise UsageError("--model, --budget-usd and --budget-tokens are for --proposer llm")


def proposer_of(run: str, settings: RunSettings, archive: Archive, folder: Path, held: ExitStack) -> Proposer:
    """The run's proposer. What it holds is let go with `held`. Raises UsageError as `check` does."""
    check(settings)
    made = [_one(name, run, settings, archive, folder, held) for name in settings.proposer]
    return made[0] if len(made) == 1 else MixedProposer(made)


def _one(name: str, run: str, settings: RunSettings, archive: Archive, folder: Path, held: ExitStack) -> Proposer:
    if name == "builtin":
        return BuiltinProposer()
    source = _source(name, run, settings, archive, folder)
    held.callback(source.close)

    def winners(context: Context) -> Sequence[Hit]:
        seen = [t.result.environment for t in context.history]
        if not seen and context.device != "cpu":
            return ()
        where = seen[-1] if seen else devices.environment("cpu")
        found = retrieve(archive, context.problem, context.info, where, limit=RETRIEVED + 1)
        return [hit for hit in found if hit.problem_hash != context.problem.hash][:RETRIEVED]

    return WrittenProposer(source, run, winners)


def _source(name: str, run: str, settings: RunSettings, archive: Archive, folder: Path) -> Source:
    if name == "handoff":
        return HandoffSource(folder / "handoff")
    limits = Limits(usd=settings.budget_usd, tokens=settings.budget_tokens)
    models, prices = parse_models(settings.models), load_prices(settings.prices)
    return ModelSource(archive, run, models, limits, prices, settings.seed)
