"""A specification becomes a self-contained problem, or one line that says why not."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.kernelbench.contract import check, instantiate, load
from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.sources import from_spec, suite, suites
from kernelwright.kernelbench.syntax import with_shape

LAYER = """\
import torch as th

class Scale(th.nn.Module):
    def __init__(self, factor=2.0):
        super().__init__()
        self.factor = factor

    def forward(self, x, y):
        return x * self.factor + y
"""

SHAPED = """\
import torch

ROWS = 8  # größer als nötig: ROWS = 8
COLS: int = 4
SIZE = ROWS * COLS
é = 1; DEPTH = 2; LAST = 3
SHAPES = {"tiny": {"ROWS": 2}, "gpu": {"ROWS": 1024, "COLS": 512, "DEPTH": 12345, "LAST": 9}, "bad": {"SIZE": 3}}


class Model(torch.nn.Module):
    def forward(self, x):
        ROWS = 8
        return x + ROWS


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layer.py").write_text(LAYER)
    (tmp_path / "shaped.py").write_text(SHAPED, encoding="utf-8")
    (tmp_path / "latin.py").write_bytes("# größer\n".encode("latin-1"))
    (tmp_path / "broken.py").write_text("x = (\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


def test_a_file(here: Path) -> None:
    problem = from_spec("shaped.py")
    assert (problem.name, problem.origin, problem.shape, problem.source) == ("shaped", "shaped.py", None, SHAPED)


def test_a_class_in_a_file_gets_the_names_of_the_contract(here: Path) -> None:
    problem = from_spec("layer.py:Scale", inputs="torch.randn(3, 4), torch.randn(4)", init="3.0")
    assert problem.name == "layer.Scale"
    assert problem.source.startswith(LAYER)
    check(problem, "cpu")
    model, inputs = instantiate(load(problem), "cpu", 0)
    assert model.factor == 3.0
    assert [tuple(x.shape) for x in inputs] == [(3, 4), (4,)]


@pytest.mark.parametrize(
    ("inputs", "count"),
    [
        ("torch.ones(2)", 1),
        ("torch.ones(2),", 1),
        ("torch.ones(2), 3", 2),
        ("[torch.ones(2), 3]", 2),
        ("[[torch.ones(2)], 3]", 2),
        ("[*(torch.ones(2) for _ in range(5)), 3]", 6),
        ("torch.ones(\n  2\n)", 1),
    ],
)
def test_the_expression_of_inputs(here: Path, inputs: str, count: int) -> None:
    problem = from_spec("layer.py:Scale", inputs=inputs)
    assert len(load(problem).get_inputs()) == count


def test_a_class_called_model_and_its_own_functions_are_kept(here: Path) -> None:
    assert from_spec("shaped.py:Model").source == SHAPED
    replaced = from_spec("shaped.py", inputs="torch.ones(5)")
    assert load(replaced).get_inputs()[0].shape == (5,)


def test_an_imported_class_can_be_named(here: Path) -> None:
    (here / "star.py").write_text("from torch.nn import *\n")
    check(from_spec("star.py:GELU", inputs="torch.randn(8)"), "cpu")
    (here / "one.py").write_text("from torch.nn import GELU as Gate\n")
    check(from_spec("one.py:Gate", inputs="torch.randn(8)"), "cpu")


def test_a_byte_order_mark_is_no_part_of_the_source(here: Path) -> None:
    (here / "bom.py").write_text(SHAPED, encoding="utf-8-sig")
    assert from_spec("bom.py").hash == from_spec("shaped.py").hash


def test_a_shape_changes_its_numbers_and_what_follows_from_them(here: Path) -> None:
    problem = from_spec("shaped.py", shape="gpu")
    assert problem.shape == "gpu"
    assert problem.hash != from_spec("shaped.py").hash
    lines = problem.source.splitlines()
    assert lines[2] == "ROWS = 1024  # größer als nötig: ROWS = 8"
    assert lines[3] == "COLS: int = 512"
    assert lines[5] == "é = 1; DEPTH = 12345; LAST = 9"
    assert "        ROWS = 8" in lines
    namespace: dict[str, object] = {}
    exec(problem.source, namespace)
    assert namespace["SIZE"] == 1024 * 512


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=5), st.data())
def test_writing_a_shape_moves_nothing_else(old: list[int], data: st.DataObject) -> None:
    new = data.draw(st.lists(st.integers(1, 10**12), min_size=len(old), max_size=len(old)))
    shapes = {"s": {f"N{i}": n for i, n in enumerate(new)}, "t": {f"N{i}": n for i, n in enumerate(old)}}
    source = "".join(f"N{i} = {n}  # ä\n" for i, n in enumerate(old)) + f"SHAPES = {shapes}\n"
    written = with_shape(source, "p.py", "s")
    namespace: dict[str, object] = {}
    exec(written, namespace)
    assert [namespace[f"N{i}"] for i in range(len(old))] == new
    assert with_shape(written, "p.py", "s") == written
    assert with_shape(written, "p.py", "t") == source


BAD = [
    ({"spec": "nothing.py"}, "nothing.py: no such file"),
    ({"spec": "nothing"}, "nothing: no such file, and no problem of a suite (core)"),
    ({"spec": "core/nothing"}, None),
    ({"spec": "folder"}, "folder: a folder; name one file in it"),
    ({"spec": "layer.py/x.py"}, "layer.py/x.py: cannot be read: Not a directory"),
    ({"spec": "nul\0.py"}, "nul\0.py: cannot be read: embedded null byte"),
    ({"spec": "latin.py"}, "latin.py: not UTF-8 text (byte 4)"),
    ({"spec": "broken.py"}, "broken.py:1: not Python: '(' was never closed"),
    ({"spec": "layer.py:"}, "layer.py:: '' is not a class name; write path.py:ClassName"),
    ({"spec": "layer.py:3"}, "layer.py:3: '3' is not a class name; write path.py:ClassName"),
    ({"spec": "layer.py:Shift"}, "layer.py:1: no class Shift; the file defines Scale, th"),
    ({"spec": "layer.py:Scale"}, "layer.py:3: no get_inputs() for Scale; give --inputs 'torch.randn(...), ...'"),
    (
        {"spec": "layer.py:Scale", "inputs": "torch.ones(2"},
        "--inputs: not a Python expression: '(' was never closed: torch.ones(2",
    ),
    (
        {"spec": "layer.py:Scale", "inputs": "x = 3"},
        "--inputs: not a Python expression: invalid syntax: x = 3",
    ),
    ({"spec": "layer.py:Scale", "inputs": ""}, "--inputs: not a Python expression: invalid syntax: "),
    (
        {"spec": "layer.py:Scale", "inputs": "torch.ones(2)", "init": "factor=3\nimport os"},
        "--init: not a Python expression: invalid syntax: factor=3 import os",
    ),
    ({"spec": "shaped.py", "shape": "huge"}, "shaped.py: no shape 'huge'; known: bad, gpu, tiny"),
    (
        {"spec": "shaped.py", "shape": "bad"},
        "shaped.py:7: SHAPES['bad'] sets SIZE, but the file has no top-level `SIZE = <integer>`; "
        "known shapes: bad, gpu, tiny",
    ),
    ({"spec": "layer.py", "shape": "gpu"}, "layer.py: no shape 'gpu'; the file defines no SHAPES"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_what_cannot_be_read_says_so_in_one_line(here: Path, arguments: dict[str, str], message: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        from_spec(**arguments)
    known = ", ".join(p.name for p in suite("core"))
    assert str(caught.value) == (message or f"core/nothing: no such problem; core has {known}")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ("{'gpu': {'N': 1 << 20}}", "s.py:2: SHAPES is not a literal dictionary"),
        ("{'gpu': {'N': -1}}", "s.py:2: SHAPES['gpu'] maps 'N' to -1, not a name to a positive integer"),
        ("{3: {'N': 1}}", "s.py:2: SHAPES has the label 3, which is not a string"),
    ],
)
def test_shapes_must_be_plain(here: Path, shapes: str, message: str) -> None:
    (here / "s.py").write_text(f"N = 3\nSHAPES = {shapes}\n")
    with pytest.raises(UsageError) as caught:
        from_spec("s.py", shape="gpu")
    assert str(caught.value) == message


def test_suites() -> None:
    assert suites() == ["core"]
    with pytest.raises(UsageError, match="no suite 'level9'; known: core"):
        suite("level9")


def test_reading_problems_imports_no_torch() -> None:
    code = (
        "import sys; from kernelwright.kernelbench.sources import suite; "
        "suite('core'); assert 'torch' not in sys.modules"
    )
    src = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(src)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
