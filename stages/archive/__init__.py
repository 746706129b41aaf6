"""The archive of problems, candidates, verdicts and times."""

from kernelwright.stages.archive.models import CONFIRM, SEARCH
from kernelwright.stages.archive.store import Archive, Described, Record, RunInfo

__all__ = ["CONFIRM", "SEARCH", "Archive", "Described", "Record", "RunInfo"]
