"""In a runner that is thrown away: what a candidate really runs, and whether its own kernels matter.

    inspection = Inspection(path, device)     # before the candidate is imported: it watches the process from here on
    report = inspection.report(call, arguments, other_arguments)

The report is plain JSON, and untrusted: the candidate lives in this process. `verify/own_work.py` lets it count against
the candidate only.
"""

from kernelwright.stages.sandbox.inspect.inspection import Inspection

__all__ = ["Inspection"]
