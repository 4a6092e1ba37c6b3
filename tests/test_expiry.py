"""Tests of a run's expiry: backends read it from meta and compare it with the clock, and followers raise."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import JsonValue, PlannerNote, Store, new_event, open_store, open_sync_store
from agent_memory_log.backend_kit import (
    check_before,
    check_expiry,
    check_meta,
    expiry_of,
    now_microseconds,
    seconds_left,
)
from agent_memory_log.conformance.ends import until_expired, with_an_end
from agent_memory_log.conformance.threaded import threaded
from agent_memory_log.errors import InvalidArgument, InvalidEvent, RunExpired
from agent_memory_log.events.event import to_microseconds

SECOND = 1_000_000
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW = to_microseconds(NOON)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2026-11-21T12:00:00Z", NOW),
        ("2026-11-21t12:00:00z", NOW),
        ("2026-11-21T17:30:00+05:30", NOW),
        ("2026-11-20T23:59:00-12:01", NOW),
        ("2026-11-21T12:00:00.5Z", NOW + SECOND // 2),
        ("2026-11-21T12:00:00.000001999Z", NOW + 1),
    ],
)
def test_expiry_is_read_to_the_microsecond(text: str, microseconds: int) -> None:
    assert expiry_of({"a": 1, "expires_at": text}) == microseconds
    assert check_meta({"expires_at": text}) == {"expires_at": text}


@pytest.mark.parametrize("meta", [None, {}, {"expires": "2026-11-21T12:00:00Z"}, {"a": {"expires_at": "never"}}])
def test_meta_without_expires_at_has_no_expiry(meta: dict[str, Any] | None) -> None:
    assert expiry_of(meta) is None
    assert check_meta(meta) == (meta or {})


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (None, "must be RFC 3339 text, as in .*, got null"),
        (3, "must be RFC 3339 text, as in .*, got int 3"),
        (NOON.isoformat(" "), "'2026-11-21 12:00:00.00:00'.*: not RFC 3339"),
        ("2026-11-21T12:00:00", "not RFC 3339"),
        ("2026-02-30T12:00:00Z", "day"),
        ("2026-11-21T12:00:60Z", "second"),
        ("9999-12-31T23:59:59-00:01", "out of range"),
    ],
)
def test_invalid_expiry_is_refused_with_its_field(end: Any, message: str) -> None:
    for read in (expiry_of, check_meta):
        with pytest.raises(InvalidEvent, match=message) as caught:
            read({"expires_at": end})
        assert caught.value.field == "meta.expires_at"
        assert str(caught.value).startswith("meta.expires_at ")


def test_run_expires_at_the_instant_itself() -> None:
    check_expiry("agent", "run", None, NOW)
    check_expiry("agent", "run", NOW + 1, NOW)
    for end in (NOW, NOW - 1):
        with pytest.raises(RunExpired):
            check_expiry("agent", "run", end, NOW)
    with pytest.raises(RunExpired, match=r"^agent/run expired at 2026-11-21T12:00:00\.500000Z: .*delete the run"):
        check_expiry("agent", "run", NOW + SECOND // 2, NOW + SECOND)


def test_clock_is_the_default_instant() -> None:
    before = to_microseconds(datetime.now(UTC))
    now = now_microseconds()
    assert before <= now <= to_microseconds(datetime.now(UTC))
    with pytest.raises(RunExpired):
        check_expiry("agent", "run", now)
    check_expiry("agent", "run", now + 3600 * SECOND)
    assert now <= check_before(None) <= now_microseconds()
    assert seconds_left(now) == 0


def test_before_must_be_in_the_past() -> None:
    assert check_before(None, NOW) == NOW
    assert check_before(NOON, NOW) == NOW
    assert check_before(NOON.astimezone(timezone(timedelta(hours=-7))), NOW) == NOW
    assert check_before(datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), NOW) < 0
    for future in (NOON + timedelta(microseconds=1), datetime.max.replace(tzinfo=timezone(-timedelta(hours=14)))):
        with pytest.raises(InvalidArgument, match="in the future"):
            check_before(future, NOW)
    wrong: list[Any] = [NOON.replace(tzinfo=None), date(2026, 1, 1), "2026-01-01T00:00:00Z", 0]
    for before in wrong:
        with pytest.raises(InvalidArgument, match="timezone-aware"):
            check_before(before, NOW)


def test_wait_ends_with_the_run_and_has_a_limit() -> None:
    assert seconds_left(None, NOW) is None
    assert seconds_left(NOW + SECOND // 4, NOW) == 0.25
    assert seconds_left(NOW - 1, NOW) == 0
    assert seconds_left(to_microseconds(datetime.max.replace(tzinfo=UTC)), NOW) == 60


@pytest.mark.parametrize("surface", ["async", "sync"])
@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_follower_raises_run_expired_after_the_run_is_removed(tmp_path: Path, backend: str, surface: str) -> None:
    url = f"{backend}:{tmp_path}/runs.db"
    store: Store = await open_store(url) if surface == "async" else threaded(open_sync_store(url))

    async def fill(meta: dict[str, JsonValue]) -> None:
        await store.append_events("agent", "run", new_event(PlannerNote(note="n")), meta=meta)
        async with aclosing(store.follow("agent", "run")) as events:
            await anext(events)
            await until_expired(store)
            assert (await store.expire_runs()).runs == 1
            assert not (await store.load_run("agent", "run")).log
            with pytest.raises(RunExpired):
                await anext(events)

    await with_an_end(store, fill)
    await store.aclose()
