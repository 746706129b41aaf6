"""Asks a model, and has the archive know of it: before, at the worst cost; after, with what came back."""

from __future__ import annotations

from kernelwright.agent.llm.client import Client
from kernelwright.agent.llm.course import Request
from kernelwright.agent.llm.models import Role
from kernelwright.agent.llm.redact import redact
from kernelwright.agent.llm.reply import Bill, CallFailed, Outcome
from kernelwright.kernelbench.errors import KernelwrightError
from kernelwright.stages.archive import Archive, calls
from kernelwright.stages.archive.calls import Place, Usage

NO_BILL = Bill(Usage(0, 0, 0), 0.0, 0, 0.0)


def ask(client: Client, archive: Archive, place: Place, role: Role, request: Request) -> str:
    """The model's words for a place of a run; those that are stored, where a process that is gone has asked already.

    The reply is in the archive before it is returned. Raises as `Client.complete` does.
    """
    stored = calls.answered(archive, place, role)
    if stored is not None:
        return stored.reply
    worst = client.worst(request)
    call = calls.begin(archive, place, role, request.model, redact(request.prompt.text), worst.usage, worst.cost_usd)
    try:
        reply = client.complete(request)
    except CallFailed as failed:
        _finish(archive, call, failed.prompt.text, "", failed.outcome, str(failed), failed.bill)
        raise
    except KernelwrightError as stop:
        _finish(archive, call, redact(request.prompt.text), "", Outcome.STOPPED, str(stop), NO_BILL)
        raise
    _finish(archive, call, reply.prompt.text, reply.text, Outcome.OK, "", reply.bill)
    return reply.text


def _finish(archive: Archive, call: int, prompt: str, text: str, outcome: Outcome, message: str, bill: Bill) -> None:
    calls.finish(
        archive,
        call,
        prompt=prompt,
        reply=text,
        outcome=outcome.value,
        message=message,
        usage=bill.usage,
        cost_usd=bill.cost_usd,
        seconds=bill.seconds,
        requests=bill.requests,
    )
