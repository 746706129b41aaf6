"""Child process of the interpreter check: run a candidate on the CPU, with TRITON_INTERPRET=1 set by the parent.

It starts with `candidate.py` and `given.pt` in the working directory, and leaves `outputs.pt` or `error.txt` there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import triton

from kernelwright.stages.compile.process import end_with_parent
from kernelwright.stages.compile.standin import standin_device
from kernelwright.stages.compile.target import DEFAULT_CAPABILITY
from kernelwright.stages.compile.triton_child import CANDIDATE, candidate_traceback, import_candidate
from kernelwright.stages.compile.triton_driver import RecordingDriver
from kernelwright.stages.verify.interpreter import tensors_of


def _outputs(given: dict[str, Any]) -> list[torch.Tensor]:
    torch.manual_seed(given["seed"])
    model = import_candidate(Path(CANDIDATE)).ModelNew(*given["init_inputs"])
    if any(t.dtype is torch.bfloat16 for t in model.state_dict().values()):
        # The parent gives float32 in place of bfloat16.
        model = model.float()
    if model.state_dict().keys() == given["state"].keys():
        model.load_state_dict(given["state"])
    return tensors_of(model(*given["inputs"]))


def main() -> None:
    """Run the candidate in the working directory."""
    end_with_parent()
    given = torch.load("given.pt", weights_only=False)
    triton.runtime.driver.set_active(RecordingDriver(DEFAULT_CAPABILITY))
    with standin_device("cpu", DEFAULT_CAPABILITY), torch.no_grad():
        try:
            outputs = [t.detach().contiguous() for t in _outputs(given)]
        except Exception as error:  # noqa: BLE001  the process boundary: whatever the candidate raises is the answer
            Path("error.txt").write_text(candidate_traceback(error))
            return
    torch.save(outputs, "outputs.pt")


if __name__ == "__main__":
    main()
