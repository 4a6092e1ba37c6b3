"""A local server for Chat Completions. A test scripts its replies, including delays, errors and broken connections."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec

_DRIP_SECONDS = 0.02


class Request(msgspec.Struct, frozen=True):
    """A request that the server received. Header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class Reply(msgspec.Struct, frozen=True):
    """The reply to one request.

    Attributes:
        status: The HTTP status.
        body: The body of the response.
        headers: The headers in addition to the content type and length.
        hangs: Whether the server sends no reply and keeps the connection open until the server ends.
        cut: The number of body bytes after which the connection is closed. -1 closes it before the status.
        stalls: The number of body bytes after which the server sends nothing more but leaves the connection open.
        drips: Whether the body is sent slowly, byte by byte.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = {}
    hangs: bool = False
    cut: int | None = None
    stalls: int | None = None
    drips: bool = False


def says(text: str | None, usage: Mapping[str, object] | None = None) -> Reply:
    """Return a chat completion whose message has the content ``text``."""
    message = {"role": "assistant", "content": text}
    completion: dict[str, object] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "served",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
    if usage is not None:
        completion["usage"] = dict(usage)
    return Reply(body=json.dumps(completion).encode())


def says_json(answer: object) -> Reply:
    """Return a chat completion whose message is ``answer`` as JSON."""
    return says(json.dumps(answer), {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})


Answers = Iterable[Reply] | Callable[[Request], Reply]


class ModelServer:
    """A server on a free port and a separate thread, for a ``with`` block.

    ``answers`` is a list of replies or a function that returns the reply to a request. The server sends the replies of
    a list in order, and repeats the last one. ``requests`` has the received requests.
    """

    def __init__(self, answers: Answers) -> None:
        self.requests: list[Request] = []
        self.ended = threading.Event()
        self._answer = answers if callable(answers) else self._in_turn(list(answers))
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """The base URL for a client."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reply_to(self, request: Request) -> Reply:
        """Record the request and return its reply."""
        with self._lock:
            self.requests.append(request)
            return self._answer(request)

    def _in_turn(self, replies: list[Reply]) -> Callable[[Request], Reply]:
        return lambda _: replies[min(len(self.requests), len(replies)) - 1]


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, server: ModelServer, *arguments: Any) -> None:
        self._model = server
        super().__init__(*arguments)

    def do_POST(self) -> None:  # http.server requires this name
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self._model.reply_to(Request(self.path, headers, body))
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client closed the connection first
            self._send(reply)

    def _send(self, reply: Reply) -> None:
        if reply.hangs:
            self._model.ended.wait()
        elif reply.cut != -1:
            self._begin(reply)
            if reply.drips:
                self._drip(reply.body)
            else:
                self.wfile.write(reply.body[: reply.cut if reply.cut is not None else reply.stalls])
            if reply.stalls is not None:
                self._model.ended.wait()

    def _begin(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()

    def _drip(self, body: bytes) -> None:
        for byte in body:
            self.wfile.write(bytes([byte]))
            if self._model.ended.wait(_DRIP_SECONDS):
                return

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server requires this name
        pass  # the server writes nothing to the output of a test
