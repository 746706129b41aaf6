"""Ways to run the reference beside a candidate."""

import pickle
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.measure.baselines import MODES, Baselines, flags
from kernelwright.stages.sandbox.pool import Zygote

SOURCE = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.exp() + 1\n"


def load_fields(folder: Path) -> dict[str, object]:
    (folder / "reference.py").write_text(SOURCE)
    (folder / "init.pkl").write_bytes(pickle.dumps([]))
    return {
        "path": str(folder / "reference.py"),
        "class_name": "Model",
        "init": str(folder / "init.pkl"),
        "device": "cpu",
        "training": True,
        "threads": 1,
        **flags(Precision.STRICT),
    }


def test_only_the_tf32_contract_lets_baselines_use_tf32() -> None:
    assert {p: flags(p)["allow_tf32"] for p in Precision} == {
        Precision.STRICT: False,
        Precision.TF32: True,
        Precision.TASK: False,
    }


@pytest.mark.parametrize("name", MODES)
def test_every_way_comes_up(zygote: Zygote, tmp_path: Path, name: str) -> None:
    baselines = Baselines(zygote, (name,), load_fields(tmp_path), tmp_path)
    assert baselines.ready() == [name]
    assert baselines.failed == {}
    assert baselines.ready() == []
    baselines.close()


def test_what_inductor_compiles_is_kept_where_it_was_told(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fields = load_fields(tmp_path)
    told = tmp_path / "told"
    note = f"import os, pathlib\npathlib.Path({str(told)!r}).write_text(os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
    (tmp_path / "reference.py").write_text(note + SOURCE)
    baselines = Baselines(zygote, ("eager",), fields, Path("caches"))
    assert baselines.ready() == ["eager"]
    assert told.read_text() == str(tmp_path / "caches" / "inductor")
    baselines.close()


def test_a_reference_that_cannot_be_loaded_is_a_reason_and_no_error(zygote: Zygote, tmp_path: Path) -> None:
    fields = load_fields(tmp_path)
    (tmp_path / "reference.py").write_text("raise ValueError('broken')\n")
    baselines = Baselines(zygote, ("eager",), fields, tmp_path)
    assert baselines.ready() == []
    assert list(baselines.failed) == ["eager"]
    baselines.close()
