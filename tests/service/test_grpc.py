"""Tests of gRPC: it has the results, errors, limits and rights of HTTP, for the client and for other languages."""

from __future__ import annotations

import asyncio
import itertools
import signal
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

import grpc
import msgspec
import pytest
import trustme

from agent_memory_log import JsonValue, ToolCall, new_event, open_sync_store
from agent_memory_log.conformance.checks import take
from agent_memory_log.conformance.harness import settle, waiting_next
from agent_memory_log.errors import (
    AccessDenied,
    AgentMemoryLogError,
    EventTooLarge,
    InvalidArgument,
    InvalidEvent,
    StoreClosed,
    StoreUnavailable,
    TooManyRequests,
    Unauthenticated,
    VersionConflict,
)
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.memory.configuration import ClientSettings
from agent_memory_log.service.callers import OneCaller
from agent_memory_log.service.grants import Grant
from agent_memory_log.service.grpc.messages import pack, path_of, unpack
from agent_memory_log.service.server import Limits
from agent_memory_log.service.store_operations import AppendEvents, PeekRuns
from tests import amlog
from tests.processes import PATIENCE
from tests.service.kinds import KINDS, opened
from tests.service.serving import ServerProcess, Serving, message, serving
from tests.waiting import until, until_blocking

NOWHERE = "http://127.0.0.1:1"
"""The base of URLs whose store answers only over gRPC."""

RUNS = b'{"runs": []}'


def url_of(server: Serving, options: str = "") -> str:
    return f"{NOWHERE}?grpc={server.grpc_target}{options}"


class Changing(OneCaller):
    """Knows every caller until ``error`` is set, and then raises it."""

    error: AgentMemoryLogError | None = None

    async def grant_of(self, authorization: str | None) -> Grant:
        if self.error is not None:
            raise self.error
        return await super().grant_of(authorization)


class Named(OneCaller):
    """Knows one caller, whose name can change."""

    name = "slow"

    async def grant_of(self, authorization: str | None) -> Grant:
        return msgspec.structs.replace(await super().grant_of(authorization), name=self.name)


class Call:
    """Calls a method as a client of another language does."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._channel.close()

    def __call__(self, body: bytes, path: str = path_of(PeekRuns), **options: Any) -> Any:
        """Return the result, or the error with its code and the code of its problem document."""
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(path)
        try:
            return msgspec.json.decode(unpack(method(body, timeout=PATIENCE, **options)))
        except grpc.RpcError as error:
            return failure_of(error)

    def start(self) -> tuple[Any, Callable[[], None]]:
        """Begin a call. Return its future, and the function that sends its message."""
        method: grpc.StreamUnaryMultiCallable[bytes, bytes] = self._channel.stream_unary(path_of(PeekRuns))
        sent = threading.Event()

        def messages() -> Iterator[bytes]:
            sent.wait()
            yield pack(RUNS)

        return method.future(messages(), timeout=PATIENCE), sent.set

    def without_message(self) -> Any:
        """Begin a call whose message never comes, and return its error."""
        method: grpc.StreamUnaryMultiCallable[bytes, bytes] = self._channel.stream_unary(path_of(PeekRuns))
        ended = threading.Event()

        def messages() -> Iterator[bytes]:
            ended.wait()
            yield from ()

        try:
            return method(messages(), timeout=PATIENCE)
        except grpc.RpcError as error:
            return failure_of(error)
        finally:
            ended.set()


def failure_of(error: Any) -> tuple[str, str | None]:
    problem = dict(error.trailing_metadata()).get("amlog-problem")
    return error.code().name, None if problem is None else msgspec.json.decode(problem)["code"]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_the_message_has_the_form_of_protobuf(size: int) -> None:
    text = b"x" * size
    assert unpack(pack(text)) == text
    for wrong in (pack(text)[:-1], pack(text) + b"x", b"\x12" + pack(text)[1:]):
        with pytest.raises(InvalidArgument):
            unpack(wrong)


@pytest.mark.parametrize("body", [b"", b"\x0a", b"\x0a\x80", b"\x0a" + b"\xff" * 20, pack(b"{"), pack(b"[" * 9_999)])
def test_a_message_of_another_form_is_refused(body: bytes) -> None:
    with serving(grpc=True) as server, Call(server.grpc_target) as call:
        assert call(body) == ("INVALID_ARGUMENT", "invalid_argument")
        assert call(pack(RUNS)) == []


def test_a_client_of_another_language_gets_results_codes_and_problems() -> None:
    with serving(grpc=True) as server, Call(server.grpc_target) as call:
        append: dict[str, JsonValue] = {"agent": "a", "run": "r", "events": [message("e").to_map()]}
        path = path_of(AppendEvents)
        assert call(pack(msgspec.json.encode(append)), path)["version"] == 1
        append["expected_version"] = 7
        append["events"] = [message("f").to_map()]
        assert call(pack(msgspec.json.encode(append)), path) == ("ABORTED", "version_conflict")
        assert call(pack(RUNS), "/agent_memory_log.v1.AgentMemoryLog/Nothing") == ("UNIMPLEMENTED", None)
        principal = ("amlog-principal", '{"tenant": "other", "scopes": {"user": "1"}}')
        assert call(pack(RUNS), metadata=(principal,)) == ("PERMISSION_DENIED", "access_denied")
        assert call(pack(RUNS), metadata=(principal, principal)) == ("INVALID_ARGUMENT", "invalid_argument")


ERRORS: list[tuple[AgentMemoryLogError, str]] = [
    (Unauthenticated("no"), "UNAUTHENTICATED"),
    (AccessDenied("no: \u00e4\n\u2028" + "\u65e5" * 9_000), "PERMISSION_DENIED"),
    (InvalidEvent("no: " + "\U0001f600" * 9_000, field="x"), "INVALID_ARGUMENT"),
    (VersionConflict("no", expected=2**70, actual=1), "ABORTED"),
    (EventTooLarge("no", size=2, limit=1), "RESOURCE_EXHAUSTED"),
    (TooManyRequests("no", retry_after=0.5), "RESOURCE_EXHAUSTED"),
    (StoreUnavailable("no"), "UNAVAILABLE"),
    (InvalidArgument("no"), "INVALID_ARGUMENT"),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda value: getattr(value, "code", value))
async def test_an_error_is_raised_as_it_was_on_the_server(error: AgentMemoryLogError, code: str) -> None:
    callers = Changing()
    with serving(grpc=True, callers=callers) as server:
        for kind in KINDS:
            callers.error = None
            async with opened(kind, url_of(server, "&timeout=1")) as store:
                callers.error = error
                with pytest.raises(type(error)) as raised:
                    await store.peek_runs([])
                assert raised.value.__dict__.keys() == error.__dict__.keys()
                for name in error.__dict__:
                    assert getattr(raised.value, name) == getattr(error, name)
        with Call(server.grpc_target) as call:
            assert call(pack(RUNS)) == (code, error.code)


def test_an_unexpected_error_shows_no_contents() -> None:
    callers = Changing()
    callers.error = ValueError("s3cret")  # type: ignore[assignment]  # any error of a caller's directory
    with serving(grpc=True, callers=callers) as server, Call(server.grpc_target) as call:
        assert call(pack(RUNS)) == ("INTERNAL", "agent_memory_log_error")


CONTENT: JsonValue = {
    "integers": [2**63, -(2**200), 10**300],
    "floats": [0.1, 1e308, -0.0],
    "texts": ["", "\0\x1f\u2028", "\U0001f600", "caf\u00e9", "cafe\u0301"],
    "nested": [[[{"": None}]], True],
}


@pytest.mark.parametrize("kind", KINDS)
async def test_any_content_arrives_unchanged(kind: str) -> None:
    with serving(grpc=True) as server:
        async with opened(kind, url_of(server)) as store:
            event = new_event(ToolCall("1", "t", structured=CONTENT))
            await store.append_events("a", "r", event, meta={"content": CONTENT})
            snapshot = await store.load_run("a", "r")
    assert repr(snapshot.log[0].data) == repr(event.data)
    assert snapshot.meta == {"content": CONTENT}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_above_the_limit_is_refused(kind: str) -> None:
    with serving(grpc=True, limits=Limits(body_bytes=10_000)) as server:
        async with opened(kind, url_of(server)) as store:
            with pytest.raises(EventTooLarge, match="server's limit") as raised:
                await store.append_events("a", "r", message("e", "x" * 20_000))
            assert raised.value.size > 20_000 > raised.value.limit >= 10_000
            await store.append_events("a", "r", message("e", "x" * 5_000))


def test_a_compressed_message_is_not_expanded() -> None:
    with serving(grpc=True, limits=Limits(body_bytes=10_000)) as server, Call(server.grpc_target) as call:
        body = pack(RUNS + b" " * 5_000)
        assert call(body, compression=grpc.Compression.Gzip) == ("INVALID_ARGUMENT", "invalid_argument")
        assert call(body) == []


def test_a_caller_is_refused_before_its_message_is_read() -> None:
    callers = Changing()
    callers.error = Unauthenticated("no token")
    with serving(grpc=True, callers=callers) as server, Call(server.grpc_target) as call:
        assert call.without_message() == ("UNAUTHENTICATED", "unauthenticated")


def test_messages_that_arrive_count_as_held_bytes() -> None:
    limits = Limits(body_bytes=100_000, held_bytes=150_000)
    body = msgspec.json.encode({"runs": [], "x": "x" * 60_000})
    with serving(grpc=True, limits=limits) as server, Call(server.grpc_target) as call:
        first, send_first = call.start()

        def status() -> int:
            return server.request("POST", "/v1/runs/peek_runs", body, content_type="application/json").status

        until_blocking(lambda: status() == 429)  # the call is admitted, and its message may be the largest one
        second, send_second = call.start()
        send_second()
        send_first()
        assert [msgspec.json.decode(unpack(future.result(PATIENCE))) for future in (first, second)] == [[], []]
        assert status() == 422  # the body is read again, and has an unknown field


def test_callers_that_send_nothing_leave_places_to_others() -> None:
    limits = Limits(body_bytes=100_000, held_bytes=800_000, body_seconds=1)
    callers = Named()
    with serving(grpc=True, limits=limits, callers=callers) as server, Call(server.grpc_target) as call:
        slow = [call.start() for _ in range(8)]
        until_blocking(lambda: b"amlog_active_requests 8.0" in server.request("GET", "/metrics").body)
        callers.name = "other"
        assert call(pack(RUNS)) == []
        for future, _ in slow:
            assert failure_of(future.exception(PATIENCE))[0] in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}
        for _, send in slow:
            send()
        callers.name = "slow"
        assert call(pack(RUNS)) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stop_answers_each_accepted_call_and_refuses_later_ones(kind: str, tmp_path: Path) -> None:
    """Appends run while the server stops. Each acknowledged one is stored, and each other one says that it failed."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    acknowledged: list[str] = []
    with ServerProcess(url, tmp_path / "log", "--grpc", "0") as server:
        assert server.process.stdout is not None
        target = server.process.stdout.readline().strip().removeprefix("grpc://")
        async with opened(kind, f"{NOWHERE}?grpc={target}&timeout=2") as store, asyncio.TaskGroup() as writers:

            async def write(writer: int) -> None:
                for number in itertools.count():
                    event_id = f"{writer}-{number}"
                    try:
                        await store.append_events("a", f"r{writer}", message(event_id))
                    except StoreUnavailable:
                        return
                    acknowledged.append(event_id)

            for writer in range(6):
                writers.create_task(write(writer))
            await until(lambda: len(acknowledged) > 20)
            server.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.process.wait, PATIENCE) == 0
    with open_sync_store(url) as stored:
        ids = [event.event_id for writer in range(6) for event in stored.load_run("a", f"r{writer}").log]
    assert set(acknowledged) <= set(ids)
    assert len(ids) == len(set(ids))


def test_limits_hold_for_both_protocols_together() -> None:
    with serving(grpc=True, limits=Limits(rate=0.001, burst=2)) as server, Call(server.grpc_target) as call:
        assert server.post("runs/peek_runs", {"runs": []}).status == 200
        assert call(pack(RUNS)) == []
        assert call(pack(RUNS)) == ("RESOURCE_EXHAUSTED", "too_many_requests")
        assert server.post("runs/peek_runs", {"runs": []}).status == 429
        # A request is counted after its answer.
        for status in (200, 429):
            count = f'amlog_requests_total{{operation="runs/peek_runs",status="{status}"}} 2.0'
            until_blocking(lambda: count in server.request("GET", "/metrics").body.decode())  # noqa: B023  # called at once


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_ends_when_its_token_is_revoked(kind: str) -> None:
    callers = Changing()
    with serving(grpc=True, callers=callers, limits=Limits(heartbeat_seconds=0.02)) as server:
        async with opened(kind, url_of(server)) as store, aclosing(store.follow("a", "r")) as events:
            await store.append_events("a", "r", message("e"))
            await take(events, 1)  # the stream is open
            waiting = await waiting_next(events)
            await settle()
            callers.error = Unauthenticated("the token was revoked")
            with pytest.raises(Unauthenticated, match="revoked"):
                await asyncio.wait_for(waiting, PATIENCE)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_is_left_frees_its_place(kind: str) -> None:
    with serving(grpc=True, limits=Limits(streams=1)) as server:
        async with opened(kind, url_of(server)) as store:
            for _ in range(2):
                async with aclosing(store.follow("a", "r")) as events:
                    await store.append_events("a", "r", message("e"))
                    await take(events, 1)
                until_blocking(lambda: b"amlog_open_streams 0.0" in server.request("GET", "/metrics").body)


def test_a_client_is_refused_the_memory_of_others() -> None:
    with serving(grpc=True) as server:
        config = {"mode": "remote", "base_url": NOWHERE, "prefer_grpc": True, "grpc_target": server.grpc_target}
        with SyncMemoryClient(config=config) as client:
            client.remember(key="language", value="english")
            assert client.of(Principal("acme", {"user": "1"})).get(key="language") is not None
            with pytest.raises(AccessDenied):
                client.of(Principal("acme", {"user": "2"})).get(key="language")


def metrics_of(url: str, trusting: ssl.SSLContext) -> bytes:
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE, context=trusting) as answer:
        text: bytes = answer.read()
    return text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_process_with_tls_serves_both_protocols_and_stops(kind: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    files = ("--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem"))
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with ServerProcess(url, tmp_path / "log", "--grpc", "0", *files) as server:
        assert server.process.stdout is not None
        target = server.process.stdout.readline().strip().removeprefix("grpc://")
        nowhere = f"https://127.0.0.1:1?grpc={target}&timeout=2"
        async with opened(kind, f"{nowhere}&ca={tmp_path}/ca.pem") as store:
            await store.append_events("a", "r", message("e"))
            async with opened(kind, f"{server.url}?ca={tmp_path}/ca.pem") as other:
                assert (await other.load_run("a", "r")).version == 1
            with pytest.raises(StoreUnavailable, match="certificate of the server is not accepted"):
                async with opened(kind, f"{nowhere}&ca={tmp_path}/other.pem"):
                    pass
            async with aclosing(store.follow("a", "r", after=1)) as events:
                waiting = await waiting_next(events)
                trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
                await until(lambda: b"amlog_open_streams 1.0" in metrics_of(server.url, trusting))
                server.process.send_signal(signal.SIGTERM)
                assert server.process.wait(PATIENCE) == 0
                await settle()
                assert not waiting.done()  # it asks again and again
                await store.aclose()
                with pytest.raises(StoreClosed):
                    await waiting
    assert [line["operation"] for line in server.log if line.get("message") == "answered"].count("runs/follow") == 1


def test_a_refused_connection_fails_at_once() -> None:
    with pytest.raises(StoreUnavailable, match=r"no connection: .*Connection refused"):
        open_sync_store(f"{NOWHERE}?grpc=127.0.0.1:1")


def test_a_taken_port_is_refused() -> None:
    with serving(grpc=True) as server:
        port = server.grpc_target.partition(":")[2]
        ran = amlog.run("serve", "--store", "memory:", "--port", "0", "--grpc", port)
    assert (ran.status, ran.out) == (1, "")
    assert f"cannot listen on 127.0.0.1 port {port} for gRPC" in ran.err


def test_without_the_package_a_client_uses_http_and_a_server_says_what_to_install() -> None:
    with serving() as server:
        program = (
            "import sys; sys.modules['grpc'] = None; from agent_memory_log import open_sync_store\n"
            f"open_sync_store('{server.url}?grpc=127.0.0.1:1').close()"
        )
        subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
    program = "import sys; sys.modules['grpc'] = None; from agent_memory_log.cli.main import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", program, "serve", "--store", "memory:", "--grpc", "0"],
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE,
    )
    assert (ran.returncode, ran.stderr) == (
        1,
        "amlog: --grpc needs the extra grpc: pip install 'agent-memory-log[grpc]'\n",
    )


@pytest.mark.parametrize("prefers", [False, True])
@pytest.mark.parametrize("target", [None, "[::1]:8301"])
def test_the_configuration_chooses_grpc(prefers: bool, target: str | None) -> None:
    for base, separator in (("https://a.example", "?"), ("https://a.example?timeout=3", "&")):
        settings = ClientSettings(mode="remote", base_url=base, prefer_grpc=prefers, grpc_target=target)
        chooses = prefers and target is not None
        assert settings.store_url() == (f"{base}{separator}grpc={target}" if chooses else base)
