"""The client against a real server on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kernelwright.agent.llm.budget import Amounts, Budget, Limits
from kernelwright.agent.llm.client import Client
from kernelwright.agent.llm.course import Request
from kernelwright.agent.llm.errors import retry_after_s
from kernelwright.agent.llm.faults import BudgetSpent, EndpointFault
from kernelwright.agent.llm.prices import Price, Prices
from kernelwright.agent.llm.prompt import Prompt, Section
from kernelwright.agent.llm.reply import CallFailed, Outcome
from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.archive.calls import Usage
from tests.agent.llm.server import (
    Completion,
    Cut,
    Hang,
    Held,
    Raw,
    Scripted,
    ScriptedServer,
    broken,
    failure,
    overflow,
    rate_limited,
    unsupported,
)

PRICES = Prices({"m": Price(input=1.0, cached=0.1, output=10.0)})
ASKED = Request("m", Prompt((Section("task", "make it faster"),), system="You write kernels."), max_output_tokens=100)

Serve = Callable[..., ScriptedServer]
Connect = Callable[..., Client]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    running: list[ScriptedServer] = []

    def start(*replies: Scripted, after: Scripted | None = None) -> ScriptedServer:
        server = ScriptedServer(replies, after).__enter__()
        running.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        return server

    yield start
    for server in running:
        server.__exit__(None, None, None)


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[Client] = []

    def make(budget: Budget | None = None, **options: float) -> Client:
        made = Client(budget, PRICES, first_wait_s=0.01, **options)  # type: ignore[arg-type]
        clients.append(made)
        return made

    yield make
    for client in clients:
        client.close()


def test_a_reply_is_streamed_and_counted(serve: Serve, connect: Connect) -> None:
    server = serve(Completion("x" * 100, tokens_in=50, tokens_out=25, tokens_cached=40))
    reply = connect().complete(ASKED)
    assert (reply.text, reply.finish_reason, reply.truncated) == ("x" * 100, "stop", False)
    assert reply.bill.usage == Usage(50, 40, 25)
    assert reply.bill.cost_usd == pytest.approx((10 * 1.0 + 40 * 0.1 + 25 * 10.0) / 1e6)
    (sent,) = server.requests
    assert sent.path == "/v1/chat/completions"
    assert sent.body["messages"] == [
        {"role": "system", "content": "You write kernels."},
        {"role": "user", "content": "make it faster"},
    ]
    assert (sent.body["stream"], sent.body["stream_options"]) == (True, {"include_usage": True})
    assert "temperature" not in sent.body


def test_a_server_that_does_not_count_is_estimated_thoughts_included(serve: Serve, connect: Connect) -> None:
    serve(Completion("y" * 35, counts=False, reasoning="t" * 35))
    reply = connect().complete(ASKED)
    assert reply.text == "y" * 35
    assert reply.bill.usage == Usage(ASKED.prompt.tokens, 0, 20, estimated=True)


def test_a_server_that_ignores_stream_is_understood(serve: Serve, connect: Connect) -> None:
    serve(Completion("whole", ignores_stream=True, tokens_in=9, tokens_out=2))
    reply = connect().complete(ASKED)
    assert (reply.text, reply.bill.usage) == ("whole", Usage(9, 0, 2))


def test_a_reply_that_was_cut_off_by_its_limit_says_so(serve: Serve, connect: Connect) -> None:
    serve(Completion("half a ker", finish_reason="length"))
    assert connect().complete(ASKED).truncated


@pytest.mark.parametrize(
    "trouble",
    [
        rate_limited(0),
        rate_limited(format_datetime(datetime.now(UTC) - timedelta(seconds=5), usegmt=True)),
        failure(429, "wait", retry_after_ms="5"),
        broken(500),
        broken(503),
        Cut("half a rep"),
        Raw(200, b"<html>proxy</html>", "text/html"),
        Raw(200, b'{"nothing": 1}'),
        Raw(200, b"data: {not json\n\n", "text/event-stream"),
    ],
    ids=["429", "429-date", "429-ms", "500", "503", "cut", "html", "other-json", "bad-stream"],
)
def test_what_may_pass_is_tried_again(serve: Serve, connect: Connect, trouble: Scripted) -> None:
    server = serve(trouble, trouble, Completion("at last"))
    reply = connect().complete(ASKED)
    assert reply.text == "at last"
    assert (len(server.requests), reply.bill.requests) == (3, 3)


def test_a_hanging_server_is_given_up_on_and_asked_again(serve: Serve, connect: Connect) -> None:
    server = serve(Hang(), Completion("at last"))
    assert connect(silence_s=0.3).complete(ASKED).text == "at last"
    assert len(server.requests) == 2


def test_tries_are_bounded(serve: Serve, connect: Connect) -> None:
    server = serve(after=broken())
    with pytest.raises(CallFailed) as failed:
        connect(tries=3).complete(ASKED)
    assert (failed.value.outcome, len(server.requests)) == (Outcome.BROKEN, 3)
    assert "HTTP 500" in str(failed.value)


def test_a_server_that_asks_for_an_hour_is_not_waited_for(serve: Serve, connect: Connect) -> None:
    server = serve(after=rate_limited(3600))
    with pytest.raises(CallFailed, match="asks to wait 3600 s"):
        connect().complete(ASKED)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_refusal_is_not_repeated(serve: Serve, connect: Connect, status: int) -> None:
    server = serve(after=failure(status, "The content breaks a rule"))
    with pytest.raises(CallFailed, match="breaks a rule") as failed:
        connect().complete(ASKED)
    assert (failed.value.outcome, len(server.requests)) == (Outcome.REFUSED, 1)
    assert failed.value.bill.usage == Usage(0, 0, 0)


@pytest.mark.parametrize(
    ("status", "says"), [(401, "does not accept the key in OPENAI_API_KEY"), (404, "has no model m")]
)
def test_a_wrong_key_or_model_is_the_users_to_mend(serve: Serve, connect: Connect, status: int, says: str) -> None:
    serve(after=failure(status, "no"))
    with pytest.raises(UsageError, match=says):
        connect().complete(ASKED)


def test_no_key_for_the_default_server_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="no OPENAI_API_KEY in the environment"):
        Client()


def test_a_local_server_needs_no_key(serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(Completion("hello"))
    monkeypatch.delenv("OPENAI_API_KEY")
    assert connect().complete(ASKED).text == "hello"


# Parameters


def test_the_limit_is_renamed_once_and_the_name_remembered(serve: Serve, connect: Connect) -> None:
    server = serve(unsupported("max_tokens"), Completion("one"), Completion("two"))
    client = connect()
    assert [client.complete(ASKED).text, client.complete(ASKED).text] == ["one", "two"]
    assert [sorted(n for n in r.body if n.startswith("max_")) for r in server.requests] == [
        ["max_tokens"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]
    assert {r.body.get("max_tokens") or r.body.get("max_completion_tokens") for r in server.requests} == {100}


@pytest.mark.parametrize(
    "refusal",
    [
        unsupported("stream_options"),
        failure(400, "Unrecognized request argument supplied: stream_options"),
        Raw(422, b'{"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}'),
    ],
    ids=["code", "words", "fastapi"],
)
def test_a_refused_parameter_is_left_out_from_then_on(serve: Serve, connect: Connect, refusal: Raw) -> None:
    server = serve(refusal, after=Completion("fine"))
    client = connect()
    assert client.complete(ASKED).bill.usage.estimated
    client.complete(ASKED)
    assert ["stream_options" in r.body for r in server.requests] == [True, False, False]
    assert all(r.body["stream"] for r in server.requests)


def test_what_one_model_refuses_another_may_take(serve: Serve, connect: Connect) -> None:
    server = serve(unsupported("temperature"), after=Completion("fine"))
    client = connect()
    for model in ("m", "m", "other"):
        client.complete(Request(model, ASKED.prompt, 100, temperature=0.7))
    assert [(r.body["model"], "temperature" in r.body) for r in server.requests] == [
        ("m", True),
        ("m", False),
        ("m", False),
        ("other", True),
    ]


def test_a_server_without_streams_is_asked_for_the_whole(serve: Serve, connect: Connect) -> None:
    server = serve(unsupported("stream"), Completion("whole", tokens_in=5, tokens_out=1))
    reply = connect().complete(ASKED)
    assert (reply.text, reply.bill.usage) == ("whole", Usage(5, 0, 1))
    assert [name for name in server.requests[1].body if name.startswith("stream")] == []


def test_without_a_limit_on_the_reply_nothing_is_asked(serve: Serve, connect: Connect) -> None:
    server = serve(unsupported("max_tokens"), unsupported("max_completion_tokens"), after=Completion("unbounded"))
    with pytest.raises(CallFailed, match="max_completion_tokens"):
        connect().complete(ASKED)
    assert len(server.requests) == 2


def test_a_value_that_is_too_large_is_no_unsupported_parameter(serve: Serve, connect: Connect) -> None:
    server = serve(
        after=failure(400, "max_tokens is too large: 100. The model gives at most 64.", "invalid_value", "max_tokens")
    )
    with pytest.raises(CallFailed, match="too large"):
        connect().complete(ASKED)
    assert len(server.requests) == 1


# A prompt that does not fit

LONG = Request(
    "m",
    Prompt(
        (
            Section("task", "T" * 350),
            Section("cards", "C" * 3500, priority=10),
            Section("history", "H" * 3500, priority=20),
            Section("parent", "P" * 350),
        )
    ),
    max_output_tokens=100,
)


def test_a_prompt_that_does_not_fit_loses_its_least_sections(serve: Serve, connect: Connect) -> None:
    server = serve(overflow(1600), Completion("fits"))
    reply = connect().complete(LONG)
    assert reply.text == "fits"
    assert reply.prompt.dropped == ("cards",)
    assert server.requests[1].prompt == reply.prompt.text == "\n\n".join(("T" * 350, "H" * 3500, "P" * 350))


def test_how_much_room_there_is_decides_how_much_goes(serve: Serve, connect: Connect) -> None:
    serve(overflow(1000), Completion("fits"))
    assert connect().complete(LONG).prompt.dropped == ("cards", "history")


def test_a_prompt_is_shrunk_once(serve: Serve, connect: Connect) -> None:
    server = serve(after=overflow(1600))
    with pytest.raises(CallFailed) as failed:
        connect().complete(LONG)
    assert (failed.value.outcome, len(server.requests)) == (Outcome.TOO_LONG, 2)


def test_a_prompt_of_required_sections_is_not_shrunk(serve: Serve, connect: Connect) -> None:
    server = serve(after=overflow(10))
    with pytest.raises(CallFailed) as failed:
        connect().complete(ASKED)
    assert (failed.value.outcome, len(server.requests)) == (Outcome.TOO_LONG, 1)


# The breaker


def test_five_failed_calls_in_a_row_end_it(serve: Serve, connect: Connect) -> None:
    server = serve(after=broken())
    client = connect(tries=2)
    for _ in range(5):
        client.check()
        with pytest.raises(CallFailed):
            client.complete(ASKED)
    with pytest.raises(EndpointFault, match=r"5 calls in a row failed.*HTTP 500"):
        client.complete(ASKED)
    with pytest.raises(EndpointFault):
        client.check()
    assert len(server.requests) == 10


def test_a_reply_in_between_starts_the_count_anew(serve: Serve, connect: Connect) -> None:
    serve(*[broken()] * 4, Completion("up"), *[broken()] * 4, Completion("up"))
    client = connect(tries=1)
    failed = 0
    for _ in range(10):
        try:
            client.complete(ASKED)
        except CallFailed:
            failed += 1
    assert failed == 8
    client.check()


def test_prompts_that_do_not_fit_do_not_blame_the_endpoint(serve: Serve, connect: Connect) -> None:
    serve(after=overflow(10))
    client = connect()
    for _ in range(6):
        with pytest.raises(CallFailed):
            client.complete(ASKED)
    client.check()


def test_an_empty_account_ends_it_at_once(serve: Serve, connect: Connect) -> None:
    server = serve(after=failure(429, "You exceeded your current quota", "insufficient_quota"))
    client = connect()
    with pytest.raises(CallFailed):
        client.complete(ASKED)
    with pytest.raises(EndpointFault, match="the account has nothing left"):
        client.check()
    assert len(server.requests) == 1


def test_a_server_that_is_not_there(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer() as gone:
        monkeypatch.setenv("OPENAI_BASE_URL", gone.base_url)
    budget = Budget(Limits(usd=1.0))
    with pytest.raises(CallFailed) as failed:
        connect(budget, tries=2).complete(ASKED)
    assert failed.value.outcome is Outcome.UNREACHABLE
    assert budget.spent == Amounts()


def test_who_waits_for_another_try_is_woken_when_the_endpoint_is_down(serve: Serve, connect: Connect) -> None:
    asked = threading.Event()

    def slow_down(request: object) -> Raw:
        asked.set()
        return rate_limited(100)

    serve(slow_down, after=failure(402, "no money", "insufficient_quota"))
    client = connect()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.complete, ASKED)
        assert asked.wait(10)
        with pytest.raises(CallFailed):
            client.complete(ASKED)
        with pytest.raises(CallFailed) as failed:
            waiting.result(timeout=20)
    assert failed.value.outcome is Outcome.STOPPED


# The budget


def test_eight_calls_are_under_way_at_once(serve: Serve, connect: Connect) -> None:
    together = threading.Event()
    server = serve(after=Held(Completion("kernel", tokens_in=10, tokens_out=10), together))
    client = connect()
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(client.complete, ASKED) for _ in range(8)]
        while server.most_at_once < 8:
            assert not any(call.done() for call in calls)
        together.set()
        assert {call.result().text for call in calls} == {"kernel"}


def test_money_is_never_exceeded_by_eight_calls_at_once(serve: Serve, connect: Connect) -> None:
    # A call reserves about 1,030 micro-dollars and costs 510, so that reservations stand in each other's way.
    each_usd = (10 + 50 * 10.0) / 1e6
    budget = Budget(Limits(usd=0.0035))
    server = serve(after=Completion("kernel", tokens_in=10, tokens_out=50))
    client = connect(budget)

    def until_spent(_: int) -> int:
        for done in range(100):
            try:
                client.complete(ASKED)
            except BudgetSpent:
                return done
        raise AssertionError("never spent")

    with ThreadPoolExecutor(8) as pool:
        calls = sum(pool.map(until_spent, range(8)))
    assert budget.spent.usd == pytest.approx(calls * each_usd)
    assert budget.spent.usd <= 0.0035
    # What is left does not allow one more at its worst.
    assert budget.spent.usd + client.worst(ASKED).cost_usd > 0.0035  # type: ignore[operator]
    assert len(server.requests) == calls


def test_a_request_that_broke_off_counts_at_its_worst(serve: Serve, connect: Connect) -> None:
    serve(Cut("half"), broken(), Completion("whole", tokens_in=10, tokens_out=50))
    budget = Budget(Limits(usd=1.0))
    client = connect(budget)
    worst = client.worst(ASKED).cost_usd
    reply = client.complete(ASKED)
    assert worst is not None
    assert budget.spent.usd == pytest.approx(worst + 510 / 1e6)
    assert reply.bill.cost_usd == pytest.approx(budget.spent.usd)
    assert reply.bill.usage.estimated


def test_a_model_without_a_price_has_no_cost_and_no_place_in_a_budget_of_money(serve: Serve, connect: Connect) -> None:
    serve(after=Completion("hello", tokens_in=5, tokens_out=5))
    unpriced = Request("local", ASKED.prompt, 100)
    tokens = Budget(Limits(tokens=10_000))
    assert connect(tokens).complete(unpriced).bill.cost_usd is None
    assert tokens.spent.tokens == 10
    with pytest.raises(UsageError, match="no price is known for local"):
        connect(Budget(Limits(usd=1.0))).complete(unpriced)


def test_a_budget_that_cannot_pay_for_one_call_sends_nothing(serve: Serve, connect: Connect) -> None:
    server = serve()
    with pytest.raises(BudgetSpent, match="tokens"):
        connect(Budget(Limits(tokens=100))).complete(ASKED)
    assert server.requests == []


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "Fri, 04 Dec 2026 10:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 04 Dec 2026 09:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_how_long_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, datetime(2026, 12, 4, 10, 0, 0, tzinfo=UTC)) == seconds
