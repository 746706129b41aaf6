"""A scripted model endpoint: a real HTTP server on loopback that speaks OpenAI's chat completions.

    with ScriptedServer([rate_limited(0), Completion("hello")]) as server:
        ...  # OPENAI_BASE_URL = server.base_url
        server.requests[0].body["model"]

Each request is answered by the next reply of the script; a reply may be a function of the request. A request after the
last reply is answered by `after`, which is a 500 unless given.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    path: str
    headers: dict[str, str]
    """By lower-case name."""
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        return "\n\n".join(str(message["content"]) for message in self.body["messages"])


@dataclass(frozen=True)
class Completion:
    """A whole reply: a stream of small chunks where the request asked for one, else one JSON object."""

    text: str
    finish_reason: str = "stop"
    tokens_in: int | None = None
    """None: about four characters a token."""
    tokens_out: int | None = None
    tokens_cached: int = 0
    counts: bool = True
    """Whether it tells the usage where the request asks for it."""
    reasoning: str = ""
    ignores_stream: bool = False
    """Answers with one JSON object even where a stream was asked for."""


@dataclass(frozen=True)
class Cut:
    """A stream that breaks off: the connection is closed after this text."""

    text: str


@dataclass(frozen=True)
class Raw:
    """Any status and body."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """No answer until the server ends."""


@dataclass(frozen=True)
class Held:
    """A reply that waits until the event is set."""

    reply: Completion
    until: threading.Event


Reply = Completion | Cut | Raw | Hang | Held
Scripted = Reply | Callable[[Request], Reply]


def failure(status: int, message: str, code: str | None = None, param: str | None = None, **headers: str) -> Raw:
    """An error in OpenAI's form."""
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Raw(status, json.dumps({"error": error}).encode(), headers=named)


def rate_limited(retry_after: str | float = 0) -> Raw:
    return failure(429, "Rate limit reached", "rate_limit_exceeded", retry_after=str(retry_after))


def broken(status: int = 500) -> Raw:
    return failure(status, "The server had an error while processing your request")


def unsupported(param: str) -> Raw:
    return failure(
        400, f"Unsupported parameter: '{param}' is not supported with this model.", "unsupported_parameter", param
    )


def overflow(context: int) -> Raw:
    message = f"This model's maximum context length is {context} tokens. Please reduce the length of the messages."
    return failure(400, message, "context_length_exceeded", "messages")


class ScriptedServer:
    """The server. It listens on a free port of 127.0.0.1 while the block runs."""

    def __init__(self, replies: Sequence[Scripted] = (), after: Scripted | None = None) -> None:
        self.requests: list[Request] = []
        self.most_at_once = 0
        """Requests that were under way at the same time."""
        self._replies = list(replies)
        self._after = after or failure(500, "the script has no more replies")
        self._under_way = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.script = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def script(self, *replies: Scripted, after: Scripted | None = None) -> None:
        """Say what comes next, in place of what was planned."""
        with self._lock:
            self._replies, self._after = list(replies), after or self._after

    def next_reply(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
            scripted = self._replies.pop(0) if self._replies else self._after
        reply = scripted(request) if callable(scripted) else scripted
        if isinstance(reply, Hang):
            self._ended.wait()
        if isinstance(reply, Held):
            while not (reply.until.wait(0.02) or self._ended.is_set()):
                pass
        return reply

    def answered(self) -> None:
        with self._lock:
            self._under_way -= 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        script: ScriptedServer = self.server.script  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        reply = script.next_reply(request)
        # A client that gave up has closed the connection.
        with contextlib.suppress(OSError):
            self._answer(request, reply.reply if isinstance(reply, Held) else reply)
        script.answered()

    def _answer(self, request: Request, reply: Reply) -> None:
        if isinstance(reply, Raw):
            self._whole(reply)
        elif isinstance(reply, Cut):
            self._stream([_chunk(request, {"content": reply.text})])
            self._hang_up()
        elif isinstance(reply, Completion) and request.body.get("stream") and not reply.ignores_stream:
            self._stream([*_chunks(request, reply), "[DONE]"])
            self._chunk(b"")
        elif isinstance(reply, Completion):
            self._whole(Raw(200, json.dumps(_completion(request, reply)).encode()))
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _whole(self, raw: Raw) -> None:
        self.send_response(raw.status)
        headers = {"content-type": raw.content_type, "content-length": str(len(raw.body))}
        for name, value in (headers | raw.headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw.body)

    def _stream(self, events: list[dict[str, Any] | str]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            data = event if isinstance(event, str) else json.dumps(event)
            self._chunk(f"data: {data}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, *arguments: object) -> None:
        pass


def _chunks(request: Request, reply: Completion) -> Iterator[dict[str, Any]]:
    for start in range(0, len(reply.reasoning), 16):
        yield _chunk(request, {"reasoning_content": reply.reasoning[start : start + 16]})
    for start in range(0, len(reply.text), 16):
        yield _chunk(request, {"content": reply.text[start : start + 16]})
    yield _chunk(request, {}, reply.finish_reason)
    if reply.counts and request.body.get("stream_options", {}).get("include_usage"):
        yield _head(request, "chat.completion.chunk") | {"choices": [], "usage": _usage(request, reply)}


def _chunk(request: Request, delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": "assistant"} | delta, "finish_reason": finish_reason}
    return _head(request, "chat.completion.chunk") | {"choices": [choice]}


def _completion(request: Request, reply: Completion) -> dict[str, Any]:
    message = {"role": "assistant", "content": reply.text}
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    usage = {"usage": _usage(request, reply)} if reply.counts else {}
    return _head(request, "chat.completion") | {"choices": [choice]} | usage


def _head(request: Request, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": request.body["model"]}


def _usage(request: Request, reply: Completion) -> dict[str, Any]:
    tokens_in = math.ceil(len(request.prompt) / 4) if reply.tokens_in is None else reply.tokens_in
    tokens_out = math.ceil(len(reply.text) / 4) if reply.tokens_out is None else reply.tokens_out
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
        "prompt_tokens_details": {"cached_tokens": reply.tokens_cached},
    }
