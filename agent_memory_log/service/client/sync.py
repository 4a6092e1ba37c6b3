"""Made from ``http.py``, ``connection.py`` and ``store.py`` by ``python -m tools.sync_twin``, without ``await``.

Any number of threads may use it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from httpx2 import Client, EventSource, Limits, RequestError, Response, Timeout

from agent_memory_log.backend_kit import (
    DEFAULT_MAX_EVENT_BYTES,
    ChangeSignal,
    SyncHandle,
    check_after,
    check_before,
    check_erasures,
    check_event_ids,
    check_ids,
    check_listing,
    check_load,
    check_runs,
    check_scope,
    check_seqs,
    checked_append,
    prepare,
)
from agent_memory_log.errors import AccessDenied, RunDeleted, Unauthenticated
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.memory.records.arguments import Operation, Result
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.client import pages
from agent_memory_log.service.client.address import Address
from agent_memory_log.service.client.answers import (
    MOST_ITEM_BYTES,
    SILENCE_SECONDS,
    Answer,
    check_size,
    failure_in,
    item_in,
    reported_error,
    result_in,
    unexpected,
)
from agent_memory_log.service.client.attempts import Attempts, Failure, broken_stream
from agent_memory_log.service.client.pauses import SyncPauses
from agent_memory_log.service.client.requests import Request, Socket, end_waits, failure_of, request_for, url_of
from agent_memory_log.service.client.results import append_result, check_cursor
from agent_memory_log.service.store_operations import (
    AppendEvents,
    CheckStore,
    DeleteRun,
    ExpireRuns,
    FindEvents,
    FollowRun,
    ListRuns,
    LoadRun,
    PeekRuns,
    ReadErasures,
    RedactEvents,
)
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import run_sync
from agent_memory_log.store import AppendResult, Erasures, ExpireResult, Flaw, RunHead, RunPage

# A small compressed answer could become a far larger one.
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}


class HttpTransport:
    """Sends requests to the server of an address."""

    def __init__(self, address: Address) -> None:
        self._server = address.server
        self._client = Client(
            headers={**_HEADERS, **address.headers},
            verify=address.tls,
            # A proxy of the environment may pass encrypted data on, but must not see any other.
            trust_env=address.is_encrypted,
            follow_redirects=False,
            limits=Limits(max_connections=None, max_keepalive_connections=20),
        )
        self._lock = threading.Lock()
        self._sockets: set[Socket] = set()
        """The sockets of the open streams."""
        self._has_ended = False

    def answer(self, request: Request, attempts: Attempts) -> Answer:
        """Send a request once and read the whole answer. Raises ``Failure``."""
        timeout = Timeout(attempts.wait_seconds(), connect=attempts.connect_seconds())
        with self._response(request, timeout) as response:
            return self._read(request, response, attempts)

    def items(self, request: Request, attempts: Attempts) -> Generator[str]:
        """Send the request for a stream once, and yield its items as JSON.

        Raises:
            Failure: The stream may be opened again.
            AgentMemoryLogError: The error that the server reports.
        """
        timeout = Timeout(SILENCE_SECONDS, connect=attempts.connect_seconds())
        with self._response(request, timeout) as response:
            answer = Answer(request.name, response.status_code, response.headers)
            if answer.status != HTTPStatus.OK:
                raise failure_in(self._read(request, response, attempts))
            if answer.media_type != "text/event-stream":
                raise unexpected(answer)
            with self._can_be_ended(response):
                for event in EventSource(response, max_event_size=MOST_ITEM_BYTES):
                    if event.event == "end":
                        return
                    if event.event == "error":
                        raise reported_error(event.data, request.name)
                    yield event.data
        raise broken_stream()

    def end_streams(self) -> None:
        """End the open streams, and each that is opened later."""
        with self._lock:
            self._has_ended = True
            for stream in self._sockets:
                end_waits(stream)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _read(self, request: Request, response: Response, attempts: Attempts) -> Answer:
        parts: list[bytes] = []
        size = 0
        for part in response.iter_raw():
            size += len(part)
            check_size(size, request.name)
            attempts.check_time()
            parts.append(part)
        return Answer(request.name, response.status_code, response.headers, b"".join(parts))

    @contextmanager
    def _response(self, request: Request, timeout: Timeout) -> Generator[Response]:
        """Send a request, and give the block the head of the answer. Raises ``Failure``."""
        url = url_of(self._server, request.operation)
        try:
            with self._client.stream(
                "POST", url, content=request.body, headers=request.headers, timeout=timeout
            ) as response:
                yield response
        except RequestError as error:
            raise failure_of(error, request.name) from error

    @contextmanager
    def _can_be_ended(self, response: Response) -> Generator[None]:
        """Let ``end_streams`` end the block's wait for data."""
        stream: Socket = response.extensions["network_stream"].get_extra_info("socket")
        with self._lock:
            if self._has_ended:
                raise broken_stream()
            self._sockets.add(stream)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(stream)


if TYPE_CHECKING:
    from agent_memory_log.service.grpc.sync_client import GrpcTransport


class Connection(SyncHandle):
    """A handle on a server."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        self._transport = _transport_to(address)
        self._closing = ChangeSignal()
        self._lock = threading.Lock()
        self._users = 1
        """The open handle, and each request and stream in progress. The last one closes the transport."""

    def call(
        self,
        operation: Operation[Result],
        *,
        principal: Principal | None = None,
        is_opening: bool = False,
        endless: bool = False,
    ) -> Result:
        """Send an operation, again and again if necessary, and return its result.

        Args:
            operation: An operation that is not a stream. The server checks its arguments.
            principal: The principal whose memory the operation uses, or None for that of the token.
            is_opening: Whether this is the handle's first call, which gives up when nobody accepts the connection.
            endless: Whether to wait for the server without a time limit.

        Raises:
            StoreClosed: The handle was closed.
            StoreUnavailable: The server did not answer in time, or as no server of this library does.
            AgentMemoryLogError: The error that the server reports.
        """
        self._check_open()
        request = request_for(self._address, operation, principal)
        attempts = Attempts(request.name, self._address.seconds, writes=operation.writes, endless=endless)
        while True:
            try:
                return result_in(self._answer(request, attempts), type(operation))
            except Failure as failure:
                if is_opening and failure.is_refused:
                    raise attempts.error_of(failure) from failure.__cause__
                rest = attempts.rest_after(failure)
            self._closing.wait(0, rest)

    def stream(self, operation: Operation[Result], *, endless: bool = False) -> Generator[Result]:
        """Yield the items of a stream.

        Args:
            operation: The operation, which is a stream.
            endless: Whether to open the stream again each time it breaks. Otherwise it is opened again only until the
                first item.

        Raises:
            StoreClosed: The handle was closed.
            StoreUnavailable: See ``call``. Or the stream broke after an item.
            AgentMemoryLogError: The error that the server reports.
        """
        self._check_open()
        request = request_for(self._address, operation)
        attempts = Attempts(request.name, self._address.seconds, endless=endless)
        has_begun = False
        while True:
            try:
                with closing(self._items(request, type(operation), attempts)) as items:
                    for item in items:
                        attempts.succeeded()
                        has_begun = True
                        yield item
                if not endless:
                    return
                raise broken_stream()  # handled as any other break
            except Failure as failure:
                self._check_open()
                if has_begun and not endless:
                    raise attempts.error_of(failure) from failure.__cause__
                rest = attempts.rest_after(failure)
            self._closing.wait(0, rest)

    def close(self) -> None:
        """Close the handle. Streams end at once, and requests in progress end as usual. A second call does nothing."""
        with self._lock:
            if not self._mark_closed():
                return
        self._transport.end_streams()
        self._closing.notify()
        self._leave()

    def _answer(self, request: Request, attempts: Attempts) -> Answer:
        """Send a request once and read the whole answer. Raises ``StoreClosed`` and ``Failure``."""
        with self._used():
            return self._transport.answer(request, attempts)

    def _items(self, request: Request, operation: type[Operation[Result]], attempts: Attempts) -> Generator[Result]:
        """Send the request for a stream once, and yield its items. Raises ``StoreClosed`` and ``Failure``."""
        with self._used(), closing(self._transport.items(request, attempts)) as items:
            for item in items:
                yield item_in(item, operation, request.name)

    @contextmanager
    def _used(self) -> Generator[None]:
        """Keep the transport open while the block runs. Raises ``StoreClosed``."""
        with self._lock:
            self._check_open()
            self._users += 1
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            is_last = not self._users
        if is_last:
            self._transport.close()


def _transport_to(address: Address) -> HttpTransport | GrpcTransport:
    """Return the transport over gRPC if the address names a target and the extra is installed, else over HTTP."""
    if address.grpc_target:
        try:
            from agent_memory_log.service.grpc.sync_client import GrpcTransport  # noqa: PLC0415  # needs the extra grpc
        except ModuleNotFoundError as error:
            if error.name != "grpc":
                raise
        else:
            return GrpcTransport(address)
    return HttpTransport(address)


_MOST_RUNS = 10_000
"""The largest limit of ``list_runs`` in one request."""

_FOLLOW_EVENTS = 64
"""The most events that a follower reads at once."""


class SyncRemoteStore(Connection):
    """A ``SyncStore`` on a server. Pass its URL to ``open_sync_store``."""

    @classmethod
    def open(cls, address: Address) -> Self:
        """Open the store, and check that the server knows the token.

        Raises:
            StoreUnavailable: No server of this library answers at the address.
            Unauthenticated: The server does not know the token.
        """
        store = cls(address)
        try:
            store.call(PeekRuns(()), is_opening=True)
        except BaseException as error:
            # A token that may not read may still append.
            if not isinstance(error, AccessDenied) or isinstance(error, Unauthenticated):
                store.close()
                raise
        return store

    def append_events(
        self,
        agent: str,
        run: str,
        *events: Event,
        expected_version: int | None = None,
        meta: Mapping[str, JsonValue] | None = None,
        first_seq: int | None = None,
        reserved: bool = False,
    ) -> AppendResult:
        """Append events, as ``Store.append_events`` describes.

        If an answer is lost, the request is sent again. ``inserted`` then counts only the events that the last request
        stored.
        """
        append = checked_append(
            agent,
            run,
            events,
            expected_version,
            meta,
            first_seq,
            reserved=reserved,
            max_event_bytes=DEFAULT_MAX_EVENT_BYTES,
        )
        new = tuple([event.to_event(0) for event in append.batch])
        operation = AppendEvents(agent, run, new, expected_version, append.meta, first_seq, reserved)
        return append_result(self.call(operation), append.batch)

    def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> Snapshot:
        """Load a run, as ``Store.load_run`` describes. A long run takes several requests."""
        checked_types = check_load(agent, run, after, types, limit, last)
        names = None if checked_types is None else tuple(sorted(checked_types))
        return run_sync(pages.load_run(LoadRun(agent, run, after, names, limit, last)), self)

    def find_events(self, agent: str, run: str, event_ids: Iterable[str]) -> tuple[Event | None, ...]:
        """Return the events with these ids, as ``Store.find_events`` describes."""
        check_ids(agent, run)
        operation = FindEvents(agent, run, tuple(check_event_ids(event_ids)))
        return run_sync(pages.find_events(operation), self)

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        """Follow a run, as ``Store.follow`` describes.

        A stream of the server wakes the follower, which then reads the events. After the first read of the run, the
        follower waits without a time limit for a server that cannot be reached.
        """
        self._check_open()
        check_ids(agent, run)
        check_after(after)
        pauses = SyncPauses()
        batch = self.call(LoadRun(agent, run, after, limit=_FOLLOW_EVENTS))
        first_seq = batch.first_seq
        with closing(self.stream(FollowRun(agent, run, after, first_seq), endless=True)) as heads:
            while True:
                if batch.first_seq != first_seq:
                    raise RunDeleted(f"{agent}/{run} was deleted while it was followed, after seq {after}")
                newest = batch
                pauses.begin()
                for number, event in enumerate(batch.log):
                    if number and pauses.was_long:
                        # The consumer may be slow. An event that was redacted or deleted since the batch was read must
                        # not be yielded.
                        newest = self.call(LoadRun(agent, run, newest.version, pages.REDACTIONS), endless=True)
                        if newest.first_seq != first_seq or newest.redactions or newest.last_seq < newest.version:
                            break
                        pauses.begin()
                    after = event.seq
                    yield event
                else:
                    after = batch.last_seq
                    is_up_to_date = after >= newest.version
                    while is_up_to_date:
                        head = next(heads)
                        is_up_to_date = head.version <= after and head.first_seq == first_seq
                batch = self.call(LoadRun(agent, run, after, limit=_FOLLOW_EVENTS), endless=True)

    def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        """List runs, as ``Store.list_runs`` describes. A page can have fewer runs although another page follows."""
        check_listing(agent, limit)
        if cursor is not None:
            check_cursor(cursor)
        return self.call(ListRuns(agent, min(limit, _MOST_RUNS), cursor, include_reserved))

    def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        """Return the heads of runs, as ``Store.peek_runs`` describes."""
        return run_sync(pages.peek_runs(PeekRuns(tuple(check_runs(runs)))), self)

    def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        """Redact events, as ``Store.redact_events`` describes.

        If an answer is lost, the request is sent again. The result is then that of a repeated redaction.
        """
        check_ids(agent, run)
        operation = RedactEvents(agent, run, check_seqs(seqs), reason)
        prepare(new_event(Redaction(seqs=operation.seqs, reason=reason)))  # checks the reason
        return self.call(operation)

    def delete_run(self, agent: str, run: str) -> None:
        """Delete a run, as ``Store.delete_run`` describes."""
        check_ids(agent, run)
        self.call(DeleteRun(agent, run))

    def erasures(
        self, *, after: int = 0, runs: Iterable[tuple[str, str]] | None = None, limit: int | None = None
    ) -> Erasures:
        """Read the erasure journal, as ``Store.erasures`` describes."""
        pairs = check_erasures(after, runs, limit)
        return run_sync(pages.erasures(ReadErasures(after, None if pairs is None else tuple(pairs), limit)), self)

    def expire_runs(self, *, before: datetime | None = None, dry_run: bool = False) -> ExpireResult:
        """Delete expired runs, as ``Store.expire_runs`` describes.

        If an answer is lost, the request is sent again. The result then counts only what the last request removed.
        """
        check_before(before)
        return self.call(ExpireRuns(before, dry_run))

    def check(self, agent_id: str | None = None, run_id: str | None = None) -> Generator[Flaw]:
        """Yield the flaws of stored runs, as ``Store.check`` describes."""
        check_scope(agent_id, run_id)
        return self.stream(CheckStore(agent_id, run_id))

    def execute_memory(self, operation: Operation[Result], principal: Principal | None) -> Result:
        """Carry out an operation of memory on the server. See ``ServesMemory``.

        Args:
            operation: The operation.
            principal: The principal, which the token must reach. None: that of the token.
        """
        return self.call(operation, principal=principal)
