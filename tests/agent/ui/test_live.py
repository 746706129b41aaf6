from io import StringIO

import pytest
from rich.console import Console

from kernelwright.agent.ui.events import Evaluated, Proposed, Stopped
from kernelwright.agent.ui.live import LiveScreen, draw, plain_line
from kernelwright.agent.ui.view import RunView, fold
from kernelwright.stages.execute.job import Progress
from kernelwright.stages.types import Ratio, Status

from .events import candidate, empty, right, wrong


def busy() -> RunView:
    view = fold(empty(), Proposed(0, tuple(candidate(n) for n in range(4))))
    view = fold(view, Evaluated(candidate(0), right(candidate(0), Ratio(3.31, 3.2, 3.61))))
    view = fold(
        view, Evaluated(candidate(1), wrong(candidate(1), Status.INCORRECT, "case 0: largest error: 0.3\nmore"))
    )
    return fold(view, Progress("k/2", "measure"))


def shown(view: RunView, width: int, ascii_only: bool = False) -> str:
    out = StringIO()
    Console(file=out, width=width, no_color=True).print(draw(view, 12.0, ascii_only))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_says_how_it_stands(width: int) -> None:
    text = shown(busy(), width)
    assert "4 proposed → 2 compiled → 1 correct → 1 faster" in text
    assert "12 s gone, 88 s and 20 candidates left" in text
    assert "3.31x [3.20, 3.61]" in text
    assert "eager 8 ms" in text
    assert "incorrect" in text
    assert "case 0: largest error: 0.3" in text
    assert "more" not in text
    assert "timing beside the baselines" in text
    assert max(map(len, text.splitlines())) <= width


def test_the_screen_in_ascii() -> None:
    assert shown(busy(), 80, ascii_only=True).isascii()


def test_before_and_after() -> None:
    assert "no correct candidate yet" in shown(empty(), 80)
    assert "search ended: 4 candidates were tried" in shown(fold(busy(), Stopped("4 candidates were tried")), 100)


def test_without_a_terminal_each_event_is_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveScreen(empty()) as screen:
        screen(Proposed(0, (candidate(0),)))
        screen(Evaluated(candidate(0), right(candidate(0), Ratio(3.31, 3.2, 3.61))))
        screen(Stopped("enough"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "generation 0: 1 proposed",
        f"correct {candidate(0).hash[:12]} cpp.fused lanes=0: 3.31x [3.20, 3.61] over eager",
        "search ended: enough",
    ]
    assert plain_line(busy(), Progress("k", "verify")) == ""
