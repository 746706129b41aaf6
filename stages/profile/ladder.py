"""Profile a candidate wherever an executor runs jobs: the one function that the loop calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from kernelwright.stages.execute.job import Executor, Job, JobResult, Progress, Purpose
from kernelwright.stages.profile.report import Profile
from kernelwright.stages.types import Backend

PROFILE = "/profile"
"""Ends the key of a profiling job; what stands before it is the key of the job that judges the candidate."""


def profile_job(job: Job) -> Job:
    """The job that profiles what `job` judges, on the same bench and inputs. For a bundle, or a batch of several."""
    return dataclasses.replace(
        job, key=job.key + PROFILE, purpose=Purpose.PROFILE, timed=False, incumbent_ms_over_eager=None
    )


def needs_device(job: Job) -> bool:
    """Whether profiling needs the job's device here. What is compiled for a GPU can be looked at without one."""
    import torch

    compiled = job.candidate.backend in (Backend.TRITON, Backend.CUDA)
    return job.device == "cpu" or torch.cuda.is_available() or not compiled


def profile(job: Job, executor: Executor, on_progress: Callable[[Progress], None] = lambda progress: None) -> Profile:
    """Profile the candidate of `job`, judged or not, with the best tiers that the executor's machine has.

    A candidate that fails has a profile that says so in `missing`. Raises EnvironmentFault for a machine that cannot
    run it, UsageError for a problem that cannot be used.
    """
    (result,) = executor.run([profile_job(job)], on_progress)
    return profile_of(result)


def profile_of(result: JobResult) -> Profile:
    """The profile in a profiling job's result. Raises ValueError for the result of another job."""
    if result.profile is None:
        raise ValueError(f"{result.key} is no profiling job")
    return result.profile
