"""The archive of problems, candidates, verdicts and times."""

from kernelwright.stages.archive.models import CONFIRM, SEARCH
from kernelwright.stages.archive.store import Archive, Record, RunInfo

__all__ = ["CONFIRM", "SEARCH", "Archive", "Record", "RunInfo"]
