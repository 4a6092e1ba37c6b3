"""Tests of clocks at the first and last possible date: no call raises ``OverflowError``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from agent_memory_log import Event, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import InvalidArgument, InvalidEvent
from agent_memory_log.events.event import shift_time
from agent_memory_log.interchange.atif import from_atif, to_atif
from agent_memory_log.memory import Candidate, Episode, Preference, Principal, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.transcript import parse
from agent_memory_log.transcript.conversion import parsing

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))


def memory_at(now: datetime) -> SyncMemory:
    return SyncMemoryClient(open_sync_store("memory:"), clock=lambda: now).of(Principal("t", {"user": "1"}))


@pytest.mark.parametrize("now", [FIRST, LAST, LAST - timedelta(hours=1)])
def test_memory_works_at_the_first_and_last_date(now: datetime) -> None:
    me = memory_at(now)
    me.remember(key="tea", value="green", ttl_days=365)
    me.remember(key="tea", value="black")
    me.remember(Episode("discovery", occurred_at=now), text="drank tea")
    me.write([Candidate(Preference("cup", "large"), valid_until=LAST)])
    for question in ("tomorrow", "yesterday", "next year", "last week", "in May", "10 days ago", "on Monday", "tea"):
        me.search(question)
    assert me.context("what tea, yesterday or tomorrow?").text
    me.maintain(unused_days=36_500, weak_below=1)
    assert me.rebuild().equal
    assert all((record.ttl_left_days(now) or 0) >= 0 for record in me.list())
    other = memory_at(LAST)
    other.import_jsonl(me.export_jsonl())


@pytest.mark.parametrize("now", [FIRST.replace(tzinfo=EAST), LAST.replace(tzinfo=WEST)])
def test_clock_outside_the_years_of_utc_is_refused(now: datetime) -> None:
    me = memory_at(now)
    for call in (me.list, lambda: me.search("x"), lambda: me.remember(key="k", value="v")):
        with pytest.raises(InvalidArgument, match=r"the clock returned .* outside the years 1 to 9999"):
            call()


@pytest.mark.parametrize("time", [FIRST, LAST])
def test_events_of_the_first_and_last_date_are_accepted(time: datetime) -> None:
    with open_sync_store("memory:") as store:
        event = new_event(UserMessage("I prefer tea, tomorrow and on Monday."), timestamp=time)
        store.append_events("a", "r", event)
        trajectory = from_atif(to_atif(store.load_run("a", "r")))
        assert trajectory.events[0].timestamp == time
        me = SyncMemoryClient(store, extractor=RuleExtractor()).of(Principal("t", {"user": "1"}))
        me.derive("a", "r")
        me.search("tea on Monday")
        me.context("tea")


@pytest.mark.parametrize("time", [FIRST.replace(tzinfo=EAST), LAST.replace(tzinfo=WEST)])
def test_events_outside_the_years_of_utc_are_refused(time: datetime) -> None:
    with pytest.raises(InvalidEvent, match="outside the years 1 to 9999"):
        new_event(UserMessage("x"), timestamp=time)
    with pytest.raises(InvalidEvent, match="outside the years 1 to 9999") as caught:
        Event("user_message", time, UserMessage("x")).to_map()
    assert caught.value.field == "timestamp"


def test_transcript_is_parsed_at_the_last_date(monkeypatch: pytest.MonkeyPatch) -> None:
    class LastInstant(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # noqa: ARG003  # the parser passes it
            return LAST

    monkeypatch.setattr(parsing, "datetime", LastInstant)
    events = parse([{"role": "user", "content": text} for text in "abc"], "openai-chat", source="s")
    assert [event.timestamp for event in events] == [LAST, LAST, LAST]


def test_shift_time_stops_at_the_first_and_last_date() -> None:
    day = timedelta(days=1)
    assert shift_time(FIRST, day) == FIRST + day
    assert (shift_time(LAST, day), shift_time(FIRST, -day)) == (LAST, FIRST)
    assert shift_time(LAST.replace(tzinfo=WEST), day) == LAST.replace(tzinfo=WEST)
