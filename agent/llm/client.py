"""Asks a model: chat completions of any server that speaks OpenAI's protocol.

`OPENAI_BASE_URL` names the server and `OPENAI_API_KEY` the key; both are read from the environment only. A client is
shared by threads: as many calls are under way as threads call `complete`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn
from urllib.parse import urlsplit

import openai
from openai.types.chat import ChatCompletion
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential
from tenacity.nap import sleep_using_event

from kernelwright.agent.llm import errors
from kernelwright.agent.llm.breaker import Breaker
from kernelwright.agent.llm.budget import NOTHING, Budget, Limits
from kernelwright.agent.llm.course import Answer, Course, Request, amounts
from kernelwright.agent.llm.dialect import Dialect
from kernelwright.agent.llm.faults import BudgetSpent, EndpointFault
from kernelwright.agent.llm.prices import Prices, load_prices
from kernelwright.agent.llm.prompt import Prompt
from kernelwright.agent.llm.redact import RedactingFilter, redact
from kernelwright.agent.llm.reply import Bill, CallFailed, Outcome, Reply
from kernelwright.kernelbench.errors import UsageError

DEFAULT_URL = "https://api.openai.com/v1"
KEY, URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"

TRIES = 5
"""Requests a call when the server is busy, broken or out of reach."""
FIRST_WAIT_S, LAST_WAIT_S = 1.0, 30.0
"""Between tries: drawn from below a bound that doubles, unless the server says how long."""
CONNECT_S, SILENCE_S = 10.0, 300.0
"""How long a connection may take, and a server say nothing: a model that thinks first is silent for minutes."""

log = logging.getLogger(__name__)
for _logger in (log, logging.getLogger("openai._base_client"), logging.getLogger("httpx2")):
    _logger.addFilter(RedactingFilter())


class Client:
    """An endpoint, with the budget that its calls come out of."""

    def __init__(
        self,
        budget: Budget | None = None,
        prices: Prices | None = None,
        *,
        tries: int = TRIES,
        first_wait_s: float = FIRST_WAIT_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Raises UsageError when the vendor's own server is meant and there is no key."""
        url = os.environ.get(URL, "").strip() or DEFAULT_URL
        key = os.environ.get(KEY, "").strip()
        is_default = url.rstrip("/") == DEFAULT_URL
        if is_default and not key:
            raise UsageError(f"no {KEY} in the environment (for a server that needs none, set {URL})")
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(f"{URL} is no address: it begins with http:// or https://")
        self.endpoint = _without_credentials(url)
        self.budget = budget or Budget(Limits())
        self.prices = prices or load_prices()
        self._breaker = Breaker(self.endpoint)
        self._dialect = Dialect(newest_limit_first=is_default)
        timeout = openai.Timeout(silence_s, connect=CONNECT_S)
        self._api = openai.OpenAI(api_key=key or "none", base_url=url, max_retries=0, timeout=timeout)
        self._tries = tries
        self._wait = wait_random_exponential(multiplier=first_wait_s, max=LAST_WAIT_S)

    def close(self) -> None:
        """Close its connections."""
        self._api.close()

    def check(self) -> None:
        """Raise EndpointFault when so many calls failed in a row that the endpoint must be down."""
        self._breaker.check()

    def worst(self, request: Request) -> Bill:
        """The most that a request may use: what a call is stored with before it is made."""
        return self._course(request).worst_bill()

    def complete(self, request: Request) -> Reply:
        """Ask, and wait for the whole reply.

        Raises CallFailed when this call brought none. Raises, before anything is sent, EndpointFault when the endpoint
        is down and BudgetSpent when a limit does not allow the call; and UsageError when the key, the server or the
        model is not what the user meant.
        """
        course = self._course(request)
        retrying = Retrying(
            stop=stop_after_attempt(self._tries),
            wait=self._pause_s,
            retry=retry_if_exception(errors.worth_another_try),
            sleep=sleep_using_event(self._breaker.opened),
            before_sleep=_report,
            reraise=True,
        )
        try:
            answer = retrying(self._try, course)
        except openai.OpenAIError as error:
            self._fail(course, error)
        except (BudgetSpent, EndpointFault) as stop:
            if course.requests == 0:
                raise
            # What its earlier requests used has to be told; whoever asks next meets the same stop.
            raise CallFailed(Outcome.STOPPED, str(stop), course.prompt, course.bill()) from None
        self._breaker.succeeded()
        return Reply(redact(answer.text), request.model, course.prompt, answer.finish_reason, course.bill())

    def _course(self, request: Request) -> Course:
        if self.budget.limits.usd is not None:
            self.prices.require([request.model])
        return Course(replace(request, prompt=_redacted(request.prompt)), self.prices.of(request.model))

    def _try(self, course: Course) -> Answer:
        """One request; and others at once, for as long as the server says what to leave out."""
        asked = course.request
        while True:
            parameters = self._dialect.parameters(asked.model, asked.max_output_tokens, asked.temperature)
            try:
                return self._send(course, parameters)
            except openai.APIStatusError as error:
                if not self._mended(course, parameters, error):
                    raise

    def _mended(self, course: Course, sent: Mapping[str, Any], error: openai.APIStatusError) -> bool:
        """Whether the next request asks for less: a shorter prompt, once; or without a parameter, once each."""
        if errors.is_too_long(error):
            return course.shrink(errors.context_tokens(error))
        if error.status_code not in (400, 422):
            return False
        return self._dialect.learn(course.request.model, sent, error.code, error.param, errors.described(error))

    def _send(self, course: Course, parameters: Mapping[str, Any]) -> Answer:
        """One request: reserved at its worst, settled at what the server counted."""
        self._breaker.check()
        worst, worst_usd = course.worst, course.worst_usd
        with self.budget.reserved(amounts(worst, worst_usd)) as reservation:
            course.requests += 1
            try:
                answer = self._receive(course, parameters)
            except openai.OpenAIError as error:
                if errors.used_nothing(error):
                    reservation.settle(NOTHING)
                else:
                    course.add(worst, worst_usd)
                raise
            reservation.settle(amounts(answer.usage, answer.usd))
            course.add(answer.usage, answer.usd)
            return answer

    def _receive(self, course: Course, parameters: Mapping[str, Any]) -> Answer:
        create: Any = self._api.chat.completions.create
        arguments = {"model": course.request.model, "messages": course.prompt.messages(), **parameters}
        try:
            if not parameters.get("stream"):
                return course.answer([create(**arguments)])
            with create(**arguments) as stream:
                if stream.response.headers.get("content-type", "").startswith("application/json"):
                    return course.answer([ChatCompletion.model_validate_json(stream.response.read())])
                return course.answer(list(stream))
        except ValueError as error:
            raise errors.CutShort(f"what came is no chat completion: {type(error).__name__}") from None

    def _pause_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = errors.wait_asked_s(error) if error else None
        return self._wait(state) if asked is None else asked

    def _fail(self, course: Course, error: openai.OpenAIError) -> NoReturn:
        """Say what an error means for this call, and for those that follow."""
        message, outcome = errors.described(error), errors.outcome_of(error)
        if isinstance(error, openai.APIStatusError):
            if error.status_code == 401:
                raise UsageError(f"{self.endpoint} does not accept the key in {KEY}: {message}") from None
            if error.status_code == 404:
                raise UsageError(f"{self.endpoint} has no model {course.request.model}: {message}") from None
            if errors.is_out_of_money(error):
                self._breaker.open(f"the account has nothing left: {message}")
        if outcome is not Outcome.TOO_LONG:
            self._breaker.failed(message)
        raise CallFailed(outcome, f"{course.request.model}: {message}", course.prompt, course.bill()) from None


def _redacted(prompt: Prompt) -> Prompt:
    sections = tuple(replace(section, text=redact(section.text)) for section in prompt.sections)
    return replace(prompt, sections=sections, system=redact(prompt.system))


def _report(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    wait_s = state.next_action.sleep if state.next_action else 0.0
    if isinstance(error, openai.OpenAIError):
        log.info("try %d failed (%s); next in %.1f s", state.attempt_number, errors.described(error), wait_s)


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path.rstrip('/')}"
