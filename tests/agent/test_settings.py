"""Where a setting comes from, and what a wrong one is answered with."""

from pathlib import Path
from typing import Any

import pytest

from kernelwright.agent.settings import RunSettings, settings_from
from kernelwright.kernelbench.errors import UsageError


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RunSettings.model_fields:
        monkeypatch.delenv(f"KERNELWRIGHT_{name.upper()}", raising=False)


@pytest.mark.parametrize(
    ("name", "default", "variable", "from_variable", "argument"),
    [
        ("device", "cpu", "cuda", "cuda", "cpu"),
        ("max_candidates", 24, "7", 7, 9),
        ("time_s", 100.0, "12.5", 12.5, 3.0),
        ("patience", 3, "5", 5, 1),
        ("archive", Path("archive.db"), "kept/all.db", Path("kept/all.db"), Path("mine.db")),
        ("seed", None, "11", 11, 12),
    ],
)
def test_an_argument_wins_over_a_variable_and_a_variable_over_the_default(
    monkeypatch: pytest.MonkeyPatch, name: str, default: Any, variable: str, from_variable: Any, argument: Any
) -> None:
    if default is not None:
        assert getattr(settings_from({name: None}), name) == default
    monkeypatch.setenv(f"KERNELWRIGHT_{name.upper()}", variable)
    assert getattr(settings_from({name: None}), name) == from_variable
    assert getattr(settings_from({name: argument}), name) == argument


def test_a_seed_is_drawn_anew_for_each_run() -> None:
    assert settings_from({}).seed != settings_from({}).seed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", "tpu"),
        ("max_candidates", 0),
        ("max_candidates", "many"),
        ("time_s", -1.0),
        ("time_s", float("inf")),
        ("time_s", float("nan")),
        ("generation_size", 0),
        ("patience", 0),
        ("rounds", 4),
        ("seed", 1.5),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_setting_and_the_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    with pytest.raises(UsageError) as raised:
        settings_from({name: value})
    assert str(raised.value).startswith(f"{name} is {value!r}: ")
    assert "\n" not in str(raised.value)
    monkeypatch.setenv(f"KERNELWRIGHT_{name.upper()}", str(value))
    with pytest.raises(UsageError, match=f"^{name} is '{value}': "):
        settings_from({})


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^candidates is 3: "):
        settings_from({"candidates": 3})


def test_variables_that_are_no_settings_are_none_of_its_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_BUILD", "somewhere")
    assert settings_from({}).device == "cpu"


def test_stored_settings_come_back_whatever_the_variables_say_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = settings_from({"max_candidates": 5, "archive": Path("a.db")})
    monkeypatch.setenv("KERNELWRIGHT_MAX_CANDIDATES", "50")
    monkeypatch.setenv("KERNELWRIGHT_SEED", "1")
    assert RunSettings.model_validate(stored.model_dump(mode="json")) == stored
