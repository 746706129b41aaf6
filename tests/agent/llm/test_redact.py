"""A key goes to the endpoint's Authorization header and nowhere else."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.agent.llm.ask import ask
from kernelwright.agent.llm.client import Client
from kernelwright.agent.llm.course import Request
from kernelwright.agent.llm.faults import EndpointFault
from kernelwright.agent.llm.models import Role
from kernelwright.agent.llm.prices import Prices
from kernelwright.agent.llm.prompt import Prompt, Section
from kernelwright.agent.llm.redact import MASK, RedactingFilter, redact
from kernelwright.agent.llm.reply import CallFailed
from kernelwright.kernelbench.errors import KernelwrightError, UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive import Archive
from kernelwright.stages.archive.calls import Place, calls_of_run
from kernelwright.stages.translate.graph import Graph, OpInfo
from tests.agent.llm.server import Completion, Raw, Scripted, ScriptedServer, broken, failure, rate_limited

KEY = "canary/key+1234567890=="
QUERY = "canary-query-0987654321"
OTHER = "canary-of-another-service"
CANARIES = (KEY, QUERY, OTHER)
PROBLEM = Problem("doubling", "class Model: ...", "doubling.py")
INFO = OpInfo(Graph((), (), (), "single"), "mul[f32 r12]", "def forward(x): ...", 7, 4096, "export")


def leaks(*outputs: object) -> list[str]:
    """The canaries that are anywhere in these outputs."""
    everything = "\n".join(str(output) for output in outputs)
    return [canary for canary in CANARIES if canary in everything or json.dumps(canary)[1:-1] in everything]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("SOME_SERVICE_TOKEN", OTHER)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive.open(tmp_path / "archive.db") as archive:
        archive.add_problem(PROBLEM, INFO)
        archive.start_run("r", PROBLEM, "cpu", {})
        yield archive


def echo(status: int, **headers: str) -> Raw:
    """An error whose words have the key in them, as some proxies' do."""
    return failure(status, f"Incorrect API key provided: {KEY} ({QUERY}) " + KEY * 30, **headers)


@pytest.mark.parametrize(
    ("script", "ends"),
    [
        ([Completion(f"I know {KEY} and {OTHER}")], "reply"),
        ([echo(401)], "usage"),
        ([echo(404)], "usage"),
        ([echo(400)], "failed"),
        ([echo(500), echo(503)], "failed"),
        ([echo(429, retry_after="0"), rate_limited(0)], "failed"),
        ([echo(429, retry_after="9999")], "failed"),
        ([Raw(200, KEY.encode(), "text/plain"), broken()], "failed"),
        ([Raw(200, f'{{"choices": "{KEY}"}}'.encode()), broken()], "failed"),
        ([Raw(200, f"data: {{{KEY}\n\n".encode(), "text/event-stream"), broken()], "failed"),
        ([Raw(200, f'data: {{"error": {{"message": "{KEY}"}}}}\n\n'.encode(), "text/event-stream")] * 2, "failed"),
        ([failure(402, f"no money for {KEY}", "insufficient_quota")], "failed"),
    ],
)
def test_a_key_reaches_no_output(
    script: list[Scripted],
    ends: str,
    archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base_url}?api_key={QUERY}")
        client = Client(prices=Prices({}), tries=2, first_wait_s=0.01)
        prompt = Prompt((Section("task", f"The environment has {OTHER} and {KEY}"),), system=f"Do not tell {KEY}")
        ended = "reply"
        try:
            said.append(ask(client, archive, Place("r", 0, 0), Role.PROPOSE, Request("m", prompt, 100)))
        except (UsageError, CallFailed) as error:
            ended = "usage" if isinstance(error, UsageError) else "failed"
            said += [str(error), repr(error), repr(error.__cause__), "".join(traceback.format_exception(error))]
        try:
            client.check()
        except EndpointFault as error:
            said += [str(error), "".join(traceback.format_exception(error))]
        client.close()
        # The key did go where it belongs, and nowhere else in the request.
        assert {r.headers["authorization"] for r in server.requests} == {f"Bearer {KEY}"}
        assert leaks(*(r.body for r in server.requests)) == []
    assert ended == ends
    assert said
    printed = capsys.readouterr()
    rows = calls_of_run(archive, "r")
    assert rows
    assert leaks(*said, client.endpoint, rows, caplog.text, printed.out, printed.err) == []
    archive.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert [canary for canary in CANARIES if canary.encode() in stored] == []


def test_the_address_is_shown_without_what_is_secret_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"https://someone:{OTHER}@models.example:8443/v1/?api_key={QUERY}")
    assert Client(prices=Prices({})).endpoint == "https://models.example:8443/v1"


@pytest.mark.parametrize("address", ["models.example/v1", "file:///models", f"{KEY}"])
def test_an_address_that_is_none_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(UsageError, match="OPENAI_BASE_URL is no address") as error:
        Client()
    assert address not in str(error.value)


def test_secrets_are_masked_however_they_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    quoted = 'canary "with\nquotes"'
    monkeypatch.setenv("A_SECRET", quoted)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Gateway: {QUERY}\nX-Short: 1")
    for written in (KEY, "canary%2Fkey%2B1234567890%3D%3D", quoted, json.dumps(quoted)[1:-1], QUERY):
        assert redact(f"before {written} after") == f"before {MASK} after"


def test_what_has_the_form_of_a_key_is_masked_whatever_the_environment_says() -> None:
    assert redact("key sk-proj-abcdefghij0123456789 end") == f"key {MASK} end"
    assert redact("Authorization: Bearer abc.def.ghi-jkl-mno") == f"Authorization: Bearer {MASK}"


def test_short_values_and_other_variables_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("MONKEY", "tl.load(pointer)")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "tl.store(pointer)")
    source = "x = tl.load(pointer) if mask is not none else tl.store(pointer)"
    assert redact(source) == source


def test_the_longer_of_two_secrets_goes_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGER_KEY", OTHER + "-and-more")
    assert redact(f"<{OTHER}-and-more>") == f"<{MASK}>"


def test_log_records_lose_secrets_from_arguments_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("kernelwright.test_redact")
    log.addFilter(RedactingFilter())
    try:
        raise KernelwrightError(f"failed with {KEY}")
    except KernelwrightError:
        log.exception("key %s in %r", KEY, {"key": OTHER})
    assert MASK in caplog.text
    assert leaks(caplog.text) == []


def test_the_canaries_of_this_file_can_be_found() -> None:
    assert leaks(f"a row with {KEY}") == [KEY]
    assert leaks(base64.b64encode(KEY.encode())) == []
