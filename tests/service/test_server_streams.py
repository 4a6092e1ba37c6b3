"""Tests of the server's streams: heads of a followed run, flaws of a check, and the ends of both."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agent_memory_log import Store, open_store
from agent_memory_log.errors import Unauthenticated
from agent_memory_log.service.callers import OneCaller
from agent_memory_log.service.grants import Grant
from agent_memory_log.service.server import Limits
from agent_memory_log.service.store_operations import AppendEvents, DeleteRun, RedactEvents
from agent_memory_log.store import RunHead
from agent_memory_log_inmem import MemoryStore
from tests.service.serving import Serving, message, serving
from tests.waiting import until_blocking

_T = TypeVar("_T")

RUN = {"agent": "a", "run": "r"}


def on_loop(server: Serving, coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the server's event loop, and return its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, server.loop).result()


def open_streams(server: Serving) -> int:
    text = server.request("GET", "/metrics").body.decode()
    return int(float(text.split("\namlog_open_streams ")[1].split()[0]))


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
def test_a_stream_reports_the_head_of_a_run_now_and_after_each_change(scheme: str, tmp_path: Path) -> None:
    url = "memory:" if scheme == "memory" else f"sqlite:///{tmp_path / 'runs.db'}"
    with serving(lambda: open_store(url)) as server, server.stream("runs/follow", RUN) as stream:
        assert stream.next() == ("message", {"version": 0, "first_seq": 1})
        server.call(AppendEvents("a", "r", (message("e1"),)))
        assert stream.next() == ("message", {"version": 1, "first_seq": 1})
        server.call(AppendEvents("a", "other", (message("e1"),)))
        server.call(AppendEvents("a", "r", (message("e2"), message("e3"))))
        assert stream.next() == ("message", {"version": 3, "first_seq": 1})
        server.call(RedactEvents("a", "r", (2,)))
        assert stream.next() == ("message", {"version": 4, "first_seq": 1})
        with server.stream("runs/follow", {**RUN, "after": 4}) as second:
            assert second.next() == ("message", {"version": 4, "first_seq": 1})
        server.call(DeleteRun("a", "r"))
        kind, problem = stream.next() or ("", {})
        assert (kind, problem["status"], problem["code"]) == ("error", 410, "run_deleted")
        assert stream.next() is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({**RUN, "after": 9}, "cursor_out_of_range"),
        ({**RUN, "first_seq": 2}, "run_deleted"),
        ({"agent": "", "run": "r"}, "invalid_event"),
    ],
)
def test_a_stream_ends_with_the_error_of_its_store(body: Any, code: str) -> None:
    with serving() as server:
        server.call(AppendEvents("a", "r", (message("e1"),)))
        with server.stream("runs/follow", body) as stream:
            kind, problem = stream.next() or ("", {})
            assert (kind, problem["code"]) == ("error", code)
            assert stream.next() is None


def test_a_stream_continues_after_a_deletion_that_its_reader_knows() -> None:
    with serving() as server:
        server.call(AppendEvents("a", "r", (message("e1"),)))
        server.call(DeleteRun("a", "r"))
        with server.stream("runs/follow", {**RUN, "after": 1, "first_seq": 2}) as stream:
            assert stream.next() == ("message", {"version": 1, "first_seq": 2})
            server.call(AppendEvents("a", "r", (message("e1"),)))
            assert stream.next() == ("message", {"version": 2, "first_seq": 2})


class Deleting(MemoryStore):
    """A store in which another handle deletes the run after its head was read for the first time."""

    peeks = 0

    async def peek_runs(self, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        if not self.peeks:
            await self.append_events("a", "r", message("e1"))
        heads = await super().peek_runs(runs)
        self.peeks += 1
        if self.peeks == 1:
            await self.delete_run("a", "r")
            await self.append_events("a", "r", message("e1"))
        return heads


def test_a_deletion_before_the_store_follows_is_noticed() -> None:
    with serving(Deleting) as server, server.stream("runs/follow", RUN) as stream:
        kind, problem = stream.next() or ("", {})
        assert (kind, problem["code"]) == ("error", "run_deleted")


def test_a_slow_reader_gets_the_newest_head_and_not_each_of_them() -> None:
    """The reader opens its stream, and reads only when 2000 events were appended one by one."""
    appends = 2_000

    async def append_all(store: Store) -> None:
        for number in range(appends):
            await store.append_events("a", "r", message(f"e{number}"))

    with serving() as server, server.stream("runs/follow", RUN) as stream:
        assert stream.next() == ("message", {"version": 0, "first_seq": 1})
        on_loop(server, append_all(server.store))
        versions: list[int] = []
        while not versions or versions[-1] < appends:
            _, head = stream.next() or ("", {})
            versions.append(head["version"])
        assert versions == sorted(set(versions))
        assert len(versions) < appends / 2
        on_loop(server, server.store.append_events("a", "r", message("last")))
        assert stream.next() == ("message", {"version": appends + 1, "first_seq": 1})


def test_a_check_reports_each_flaw_and_then_ends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with serving(lambda: open_store(url)) as server:
        server.call(AppendEvents("a", "r", (message("e1"),)))
        with server.stream("runs/check", {}) as stream:
            assert stream.next() == ("end", None)
            assert stream.next() is None
        with server.stream("runs/check", {"run": "r"}) as stream:
            kind, problem = stream.next() or ("", {})
            assert (kind, problem["code"]) == ("error", "invalid_argument")


def test_heartbeats_come_without_news() -> None:
    with serving(limits=Limits(heartbeat_seconds=0.02)) as server, server.stream("runs/follow", RUN) as stream:
        stream.next()
        before = stream.heartbeats
        until_blocking(lambda: stream.line() == ":" and stream.heartbeats > before + 3)


def test_a_client_that_goes_away_frees_its_follower() -> None:
    with serving(limits=Limits(heartbeat_seconds=3_600)) as server:
        with server.stream("runs/follow", RUN) as stream:
            stream.next()
            assert open_streams(server) == 1
        until_blocking(lambda: open_streams(server) == 0)
        until_blocking(lambda: on_loop(server, _generators()) == 0)


async def _generators() -> int:
    """Return how many tasks of the event loop wait for the next result of a stream."""
    return sum("_next_or_end" in repr(task) for task in asyncio.all_tasks())


@pytest.mark.parametrize(
    ("limits", "detail"), [(Limits(streams=2), "the server has 2"), (Limits(streams_of_caller=2), "the caller has 2")]
)
def test_streams_are_limited(limits: Limits, detail: str) -> None:
    with serving(limits=limits) as server, ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(server.stream("runs/follow", RUN)).next()
        answer = server.post("runs/follow", RUN)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert detail in answer.json["detail"]
        # Streams take no place of a request.
        server.call(AppendEvents("a", "r", (message("e"),)))
        opened.close()
        until_blocking(lambda: open_streams(server) == 0)
        with server.stream("runs/follow", RUN) as stream:
            assert stream.next() == ("message", {"version": 1, "first_seq": 1})


class Revocable(OneCaller):
    """Knows every caller until ``revoked`` is set."""

    revoked = False

    async def grant_of(self, authorization: str | None) -> Grant:
        if self.revoked:
            raise Unauthenticated("the token was revoked")
        return await super().grant_of(authorization)


def test_a_stream_ends_when_its_token_is_revoked() -> None:
    callers = Revocable()
    limits = Limits(heartbeat_seconds=0.02)
    with serving(callers=callers, limits=limits) as server, server.stream("runs/follow", RUN) as stream:
        stream.next()
        callers.revoked = True
        kind, problem = stream.next() or ("", {})
        assert (kind, problem["status"]) == ("error", 401)
        assert stream.next() is None


def test_a_stop_ends_streams_without_an_end_event_so_that_clients_connect_again() -> None:
    with serving() as server, server.stream("runs/follow", RUN) as stream:
        stream.next()
        server.stop()
        assert stream.next() is None


@pytest.mark.parametrize(("waits", "fewest", "most"), [(False, 3, 96), (True, 189, 250)])
async def test_a_follower_asks_for_redactions_only_after_a_pause_of_its_consumer(
    waits: bool, fewest: int, most: int
) -> None:
    """A consumer that takes events at once needs a request for each batch of 64, and sometimes one for 10 ms."""
    with serving() as server:
        async with open_store(server.url) as store:
            await store.append_events("a", "r", *(message(f"e{number}") for number in range(192)))
            seqs: list[int] = []
            async with aclosing(store.follow("a", "r")) as events:
                async for event in events:
                    seqs.append(event.seq)
                    if len(seqs) == 192:
                        break
                    if waits:
                        await asyncio.sleep(0)
        metrics = server.request("GET", "/metrics").body.decode()
    assert seqs == list(range(1, 193))
    (count,) = re.findall(r'amlog_requests_total{operation="runs/load_run",status="200"} ([0-9]+)', metrics)
    assert fewest <= int(count) <= most


async def test_a_redaction_during_a_pause_is_seen() -> None:
    with serving() as server:
        async with open_store(server.url) as store, open_store(server.url) as other:
            await store.append_events("a", "r", *(message(f"e{number}") for number in range(9)))
            async with aclosing(store.follow("a", "r")) as events:
                for seq in range(1, 9, 2):
                    assert (await anext(events)).seq == seq
                    await other.redact_events("a", "r", [seq + 1])
                    masked = await anext(events)
                    assert (masked.seq, masked.type) == (seq + 1, "redacted")
