"""What tokens cost, and whose table says so."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agent.llm.prices import Price, Prices, load_prices
from kernelwright.kernelbench.errors import UsageError

USD = st.floats(0.0, 100.0)


def test_every_shipped_price_has_its_date_and_source() -> None:
    prices = load_prices().by_model
    assert prices
    for name, price in prices.items():
        assert price.date is not None, name
        assert date(2026, 1, 1) <= price.date, name
        assert price.source.startswith("https://"), name
        assert 0.0 < price.input <= price.output, name
        assert price.cached is None or price.cached <= price.input, name


def test_cached_and_written_tokens_have_their_own_prices() -> None:
    price = Price(input=2.0, cached=0.2, cache_write=2.5, output=10.0)
    assert price.cost_usd(1_000_000, 0) == 2.0
    assert price.cost_usd(1_000_000, 100_000, tokens_cached=500_000, tokens_written=100_000) == pytest.approx(
        0.4 * 2.0 + 0.5 * 0.2 + 0.1 * 2.5 + 0.1 * 10.0
    )
    assert Price(input=2.0, output=10.0).cost_usd(1_000_000, 0, tokens_cached=500_000) == 2.0


@given(
    price=st.builds(Price, input=USD, output=USD, cached=st.none() | USD, cache_write=st.none() | USD),
    tokens_in=st.integers(0, 10**6),
    tokens_out=st.integers(0, 10**6),
    data=st.data(),
)
def test_no_call_costs_more_than_its_worst(price: Price, tokens_in: int, tokens_out: int, data: st.DataObject) -> None:
    cached = data.draw(st.integers(0, tokens_in))
    written = data.draw(st.integers(0, tokens_in - cached))
    worst = price.worst_usd(tokens_in, tokens_out)
    assert price.cost_usd(tokens_in, tokens_out, cached, written) <= worst * (1 + 1e-12)


def test_a_file_of_the_users_overrides_and_adds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('[models."gpt-6-sol"]\ninput = 1\noutput = 2\n[models.mine]\ninput = 0\noutput = 0\n')
    monkeypatch.setenv("KERNELWRIGHT_PRICES", str(file))
    prices = load_prices()
    assert prices.of("gpt-6-sol") == Price(input=1.0, output=2.0)
    assert prices.of("mine") == Price(input=0.0, output=0.0)
    assert prices.of("gpt-6-luna") is not None
    assert prices.of("gpt-6-sol-2026-09-22") is None

    other = tmp_path / "other.toml"
    other.write_text("[models.mine]\ninput = 3\noutput = 4\n")
    assert load_prices(other).of("mine") == Price(input=3.0, output=4.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("models = [", "not a table of prices"),
        ("[prices]\n", "rows are named"),
        ("[models.a]\ninput = 1\n", "a.output: field required"),
        ("[models.a]\ninput = -1\noutput = 1\n", "a.input: input should be greater than or equal to 0"),
        ("[models.a]\ninput = nan\noutput = 1\n", "a.input"),
        ("[models.gpt-5.5]\ninput = 1\noutput = 1\n", "a dotted name needs quotes"),
    ],
)
def test_a_file_that_is_no_table_says_where(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=says) as error:
        load_prices(file)
    assert str(file) in str(error.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a table of prices"):
        load_prices(tmp_path / "none.toml")


def test_a_limit_in_money_needs_every_price() -> None:
    prices = Prices({"a": Price(input=1.0, output=1.0)})
    prices.require(["a", "a"])
    with pytest.raises(UsageError, match="no price is known for b, c"):
        prices.require(["c", "a", "b"])
