"""JSONL of our own: lossless, byte-stable, resumable, and clear about what is wrong with a file."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    Event,
    JsonValue,
    PlannerNote,
    Reader,
    Redacted,
    Snapshot,
    Store,
    ToolCall,
    UnknownPayload,
    UserMessage,
    new_event,
    open_store,
    steps,
)
from agent_memory_log.errors import (
    DecodeError,
    EventConflict,
    EventTooLarge,
    InvalidArgument,
    InvalidEvent,
    RunDeleted,
    SchemaTooNew,
)
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.samples import SAMPLE_NAMES, sample_lines
from agent_memory_log.transfer import importing, jsonl
from agent_memory_log.transfer.importing import ImportedRun
from agent_memory_log.transfer.jsonl import check_jsonl, export_run, export_store, import_jsonl
from tests.strategies import events, json_maps
from tools.make_demo import AGENT, RUN, demo_lines

ORIGINAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "go_original_written.jsonl"

# A busy machine is no finding.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


async def exported(store: Store, **options: Any) -> list[bytes]:
    return [line async for line in export_store(store, **options)]


async def exported_run(store: Store, agent: str, run: str) -> list[bytes]:
    return [line async for line in export_run(store, agent, run)]


def notes(*numbers: int, prefix: str = "n") -> list[Event]:
    return [new_event(PlannerNote(str(n)), timestamp=TIME, event_id=f"{prefix}{n}") for n in numbers]


TIME = datetime(2026, 3, 1, tzinfo=UTC)


async def file_of(count: int, *, run: str = "r") -> list[bytes]:
    """The lines of ``a/r`` with as many notes, as older exports are: a header and an event a line, and no end line."""
    return [line.replace(b"log/2", b"log/1") for line in (await ended_file_of(count, run=run))[:-1]]


async def ended_file_of(count: int, *, run: str = "r") -> list[bytes]:
    """The same as it is exported now."""
    async with open_store("memory:") as store:
        await store.append_events("a", run, *notes(*range(1, count + 1)), meta={"b": 1, "a": [1.0, 2**70]})
        return await exported_run(store, "a", run)


def seqs(snapshot: Snapshot) -> list[int]:
    return [event.seq for event in snapshot.log]


class Recorded(msgspec.Struct):
    """What a run is made of: its meta, its events, and the seqs redacted afterwards, as far as there are any."""

    meta: Mapping[str, JsonValue]
    events: list[Event]
    redacted: set[int]


recorded = st.builds(
    Recorded,
    json_maps(),
    # Markers are appended by redact_events alone.
    st.lists(events().filter(lambda event: not isinstance(event.data, Redaction)), max_size=6),
    st.sets(st.integers(1, 6), max_size=2),
)


@unhurried
@given(st.dictionaries(st.tuples(names, names), recorded, max_size=3))
async def test_any_runs_come_back_byte_for_byte(runs: dict[tuple[str, str], Recorded]) -> None:
    async with open_store("memory:") as one, open_store("memory:") as two:
        for (agent, run), made in runs.items():
            unlike = list({event.event_id: event for event in made.events}.values())
            appended = await one.append_events(agent, run, *unlike, meta=made.meta, reserved=True)
            await one.redact_events(agent, run, {seq for seq in made.redacted if seq <= appended.version})
        lines = await exported(one, include_reserved=True)
        check_jsonl(lines)
        results = await import_jsonl(two, lines, reserved=True)
        assert await exported(two, include_reserved=True) == lines
        assert all(result.read == result.inserted and result.verified for result in results)
        for agent, run in runs:
            assert await two.load_run(agent, run) == await one.load_run(agent, run)
        again = await import_jsonl(two, lines, reserved=True)
        assert [(result.version, result.inserted) for result in again] == [(result.version, 0) for result in results]
        assert await exported(two, include_reserved=True) == lines


async def test_a_header_and_an_event_a_line_and_an_end_line() -> None:
    header, event, end = await ended_file_of(1)
    assert header == (
        b'{"format":"agent-memory-log/2","agent":"a","run":"r","version":1,'
        b'"meta":{"b":1,"a":[1.0,1180591620717411303424]}}\n'
    )
    assert event == (
        b'{"type":"planner_note","timestamp":"2026-03-01T00:00:00Z","data":{"note":"1"},"event_id":"n1","seq":1}\n'
    )
    digest = hashlib.sha256(header + event).hexdigest().encode()
    assert end == b'{"end":"agent-memory-log/2","runs":1,"events":1,"sha256":"' + digest + b'"}\n'


async def test_runs_are_ordered_by_agent_and_run() -> None:
    async with open_store("memory:") as store:
        for agent, run in (("b", "1"), ("a", "2"), ("@own", "1"), ("a", "10"), ("a", "1")):
            await store.append_events(agent, run, *notes(1), reserved=True)

        async def headers(**options: Any) -> list[tuple[str, str]]:
            lines = (msgspec.json.decode(line) for line in await exported(store, **options))
            return [(line["agent"], line["run"]) for line in lines if "format" in line]

        assert await headers() == [("a", "1"), ("a", "10"), ("a", "2"), ("b", "1")]
        assert await headers(agent="b") == [("b", "1")]
        assert (await headers(include_reserved=True))[0] == ("@own", "1")
        assert await headers(agent="@own") == [("@own", "1")]


async def test_more_runs_and_events_than_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as one, open_store("memory:") as two:
        for run in range(7):
            await one.append_events("a", str(run), *notes(*range(run)))
        whole = await exported(one)
        monkeypatch.setattr(steps, "_PAGE", 2)
        monkeypatch.setattr(jsonl, "_PAGE_EVENTS", 2)
        monkeypatch.setattr(importing, "BATCH_EVENTS", 3)
        assert await exported(one) == whole
        await import_jsonl(two, whole)
        assert await exported(two) == whole


async def test_a_run_that_holds_nothing_has_no_lines() -> None:
    async with open_store("memory:") as store:
        await store.append_events("a", "r", *notes(1))
        await store.delete_run("a", "r")
        assert (
            await exported_run(store, "a", "r")
            == await exported_run(store, "a", "unknown")
            == await exported(store)
            == []
        )
        assert await import_jsonl(store, []) == []


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/runs.db"])
async def test_a_run_deleted_and_filled_again_keeps_its_seqs(url: str, tmp_path: Path) -> None:
    async with open_store("memory:") as one, open_store(url.format(tmp_path)) as two:
        await one.append_events("a", "r", *notes(1, 2, 3, 4, 5))
        await one.delete_run("a", "r")
        await one.append_events("a", "r", *notes(6, 7, 8, 9, 10))
        lines = await exported(one)
        for part in (lines[:3], lines):  # cut off, and then again
            if part is not lines:
                with pytest.raises(DecodeError, match=r"line 3.*not all up to its header's version 10"):
                    await import_jsonl(two, part)
                assert seqs(await two.load_run("a", "r")) == [6, 7]
            else:
                assert await import_jsonl(two, part) == [
                    ImportedRun("a", "r", version=10, read=5, inserted=3, verified=True)
                ]
        assert seqs(await two.load_run("a", "r")) == [6, 7, 8, 9, 10]
        assert await exported(two) == lines
        assert await two.load_run("a", "r") == await one.load_run("a", "r")


async def test_seqs_are_not_kept_below_the_version_of_a_deleted_run() -> None:
    lines = await file_of(2)
    async with open_store("memory:") as store:
        await store.append_events("a", "r", *notes(1, 2, 3, prefix="other"))
        await store.delete_run("a", "r")
        assert await import_jsonl(store, lines) == [ImportedRun("a", "r", version=5, read=2, inserted=2)]
        assert await import_jsonl(store, lines) == [ImportedRun("a", "r", version=5, read=2, inserted=0)]
        assert seqs(await store.load_run("a", "r")) == [4, 5]


async def test_another_run_is_appended_at_the_tail() -> None:
    lines = await file_of(3)
    async with open_store("memory:") as store:
        await store.append_events("a", "r", *notes(1, 2, prefix="other"), meta={"mine": 1})
        for inserted in (3, 0):
            assert await import_jsonl(store, lines) == [ImportedRun("a", "r", version=5, read=3, inserted=inserted)]
        snapshot = await store.load_run("a", "r")
        assert [event.event_id for event in snapshot.log] == ["other1", "other2", "n1", "n2", "n3"]
        assert snapshot.meta == {"mine": 1}


@pytest.mark.parametrize("before", [0, 2])
async def test_redactions_name_the_events_they_named(before: int) -> None:
    async with open_store("memory:") as one, open_store("memory:") as two:
        await one.append_events("a", "r", *notes(1, 2, 3))
        await one.redact_events("a", "r", [2], reason="first")
        await one.append_events("a", "r", *notes(5))
        await one.redact_events("a", "r", [1, 5], reason="second")
        lines = await exported(one)
        assert not any(b'"note":"2"' in line or b'"note":"5"' in line for line in lines)

        await two.append_events("a", "r", *notes(*range(before), prefix="other"))
        warm = await two.load_run("a", "r")
        for inserted in (6, 0):
            result = await import_jsonl(two, lines)
            assert result == [ImportedRun("a", "r", version=before + 6, read=6, inserted=inserted, verified=True)]
        cold = await two.load_run("a", "r")
        assert warm.extend(await two.load_run("a", "r", after=warm.last_seq)) == cold
        markers = [event.data.seqs for event in cold.log if isinstance(event.data, Redaction)]
        assert markers == [(before + 2,), (before + 1, before + 5)]
        assert [event.seq for event in cold.log if isinstance(event.data, Redacted)] == [
            before + 1,
            before + 2,
            before + 5,
        ]


async def test_a_marker_of_something_else_is_named() -> None:
    marker = new_event(Redaction(seqs=(1,)), event_id="m").to_map()
    lines = [*(await file_of(2)), msgspec.json.encode({**marker, "seq": 3})]
    lines[0] = lines[0].replace(b'"version":2', b'"version":3')
    async with open_store("memory:") as store:
        with pytest.raises(InvalidEvent, match="line 4: redaction: event 1 is not redacted"):
            await import_jsonl(store, lines)
        assert (await store.load_run("a", "r")).version == 2


async def test_what_was_redacted_here_stays_redacted() -> None:
    lines = await file_of(3)
    async with open_store("memory:") as store:
        await import_jsonl(store, lines)
        await store.redact_events("a", "r", [2])
        assert (await import_jsonl(store, lines))[0].inserted == 0
        assert isinstance((await store.load_run("a", "r")).log[1].data, Redacted)


async def test_a_file_cut_anywhere_is_a_prefix_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BATCH_EVENTS", 2)
    async with open_store("memory:") as store:
        await import_jsonl(store, [*await file_of(3), *await file_of(2, run="s")])
        whole = b"".join(await exported(store))
    for end in range(len(whole) + 1):
        part = whole[:end].splitlines(keepends=True)
        async with open_store("memory:") as store:
            is_whole = end in (0, len(whole) - 1, len(whole))
            with contextlib.nullcontext() if is_whole else pytest.raises(DecodeError, match=f"line {len(part)}"):
                await import_jsonl(store, part)
            complete = [line for line in part if line.rstrip(b"\n") in whole.split(b"\n")]
            # Every event before the cut is there, and the error says where the file went wrong.
            there = [*(await store.load_run("a", "r")).log, *(await store.load_run("a", "s")).log]
            assert len(there) == sum(b'"type"' in line for line in complete)
            await import_jsonl(store, whole.splitlines())
            assert b"".join(await exported(store)) == whole


async def test_an_import_that_failed_half_way_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BATCH_EVENTS", 2)
    lines = await ended_file_of(9)

    def breaking(end: int) -> Iterable[bytes]:
        yield from lines[:end]
        raise KeyboardInterrupt

    async with open_store("memory:") as store:
        for end in range(len(lines)):
            with pytest.raises(KeyboardInterrupt):
                await import_jsonl(store, breaking(end))
        assert (await import_jsonl(store, lines))[0].read == 9
        assert await exported(store) == lines


EVENT = b'{"type":"planner_note","timestamp":"2026-03-01T00:00:00Z","data":{"note":"1"},"event_id":"x","seq":3}'
HEADER = b'{"format":"agent-memory-log/1","agent":"b","run":"s","version":1,"meta":{}}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 4 is not JSON"),
        (b"\xff", "line 4 is not JSON"),
        (b"[" * 100_000, "line 4 is not JSON"),
        (b"[]", "line 4 must be a JSON object, found list"),
        (b"{}", "line 4: an event's type must be non-empty text, got null"),
        (EVENT.replace(b"planner_note", b""), "line 4: an event's type must be non-empty text"),
        (EVENT.replace(b'{"note":"1"}', b"null"), "line 4: planner_note: data is null"),
        (EVENT.replace(b'"1"', b"1"), "line 4: planner_note field 'note' must be text"),
        (EVENT.replace(b"2026-03-01", b"yesterday"), "line 4: planner_note: timestamp"),
        (EVENT.replace(b'"seq":3', b'"seq":"3"'), "line 4: planner_note: seq must be an integer"),
        (EVENT.replace(b'"seq":3', b'"seq":4'), "line 4: the seq must be 3, found 4"),
        (EVENT.replace(b'"seq":3', b'"seq":2'), "line 4: the seq must be 3, found 2"),
        (EVENT.replace(b'"seq":3', b'"seq":0'), "line 4: the seq must be 3, found none"),
        (EVENT.replace(b'"seq":3', b'"seq":' + b"9" * 17), "line 4: the seq must be 3, found 9+"),
        (HEADER, "line 4 begins another run, but a/r has only 2 events .*version 3"),
        (HEADER.replace(b'"b"', b"null"), "line 4: the header's agent must be non-empty text, found null"),
        (HEADER.replace(b'"s"', b'""'), "line 4: the header's run must be non-empty text"),
        (HEADER.replace(b":1,", b":true,"), "line 4: the header's version must be an integer from 1, found bool"),
        (HEADER.replace(b":1,", b":0,"), "line 4: the header's version must be an integer from 1, found int 0"),
        (HEADER.replace(b"{}", b"[]"), "line 4: the header's meta must be a map, found list"),
        (HEADER.replace(b"agent-memory-log/1", b"other/1"), "line 4: format must be agent-memory-log/2, found str"),
        (HEADER.replace(b'"agent-memory-log/1"', b"1"), "line 4: format must be agent-memory-log/2, found int 1"),
    ],
)  # fmt: skip
async def test_a_bad_line_is_named_and_what_is_before_it_is_stored(line: bytes, message: str) -> None:
    lines = [*(await file_of(3))[:3], line]
    async with open_store("memory:") as store:
        with pytest.raises(DecodeError, match=message):
            await import_jsonl(store, lines)
        assert seqs(await store.load_run("a", "r")) == [1, 2]


async def test_more_events_than_the_header_says_and_none_at_all() -> None:
    lines = [HEADER, EVENT.replace(b":3", b":1"), EVENT.replace(b":3", b":2")]
    async with open_store("memory:") as store:
        with pytest.raises(DecodeError, match="line 3: seq 2 is beyond the version 1 of the run's header"):
            await import_jsonl(store, lines)
        with pytest.raises(DecodeError, match="after line 1, but b/s has only 0 events"):
            await import_jsonl(store, lines[:1])


async def test_a_newer_format_is_refused_with_what_to_do() -> None:
    lines = [*await file_of(1), HEADER.replace(b"log/1", b"log/3")]
    async with open_store("memory:") as store:
        with pytest.raises(SchemaTooNew, match=r"line 3: .*upgrade agent-memory-log") as caught:
            await import_jsonl(store, lines)
        assert (caught.value.actual, caught.value.supported) == (3, 2)
        assert (await store.load_run("a", "r")).version == 1


async def test_an_event_no_store_takes_is_named_and_what_is_before_it_is_stored() -> None:
    lines = await file_of(9)
    long_key = b'"labels":{"' + b"k" * 200 + b'":"v"},'
    async with open_store("memory:") as store:
        lines[7] = lines[7].replace(b'"event_id"', long_key + b'"event_id"')
        with pytest.raises(InvalidEvent, match="line 8: the label"):
            await import_jsonl(store, lines)
        assert seqs(await store.load_run("a", "r")) == [1, 2, 3, 4, 5, 6]
    async with open_store("memory:?max_event_bytes=50") as store:
        lines[7] = lines[6].replace(b'"6"', b'"' + b"6" * 99 + b'"').replace(b'"n6"', b'"n7"').replace(b":6}", b":7}")
        with pytest.raises(EventTooLarge, match="line 8: ") as caught:
            await import_jsonl(store, lines)
        assert caught.value.limit == 50
        assert (await store.load_run("a", "r")).version == 6


async def test_batches_over_a_stores_limit_are_made_smaller() -> None:
    lines = await ended_file_of(100)
    async with open_store("memory:?max_event_bytes=14") as store:  # a batch has 16 times as much
        assert (await import_jsonl(store, lines))[0].inserted == 100
        assert await exported(store) == lines


async def test_an_event_with_another_body_is_named() -> None:
    lines = await file_of(3)
    async with open_store("memory:") as store:
        await store.append_events("a", "r", *notes(9), new_event(PlannerNote("other"), event_id="n2"))
        with pytest.raises(EventConflict, match="line 3: ") as caught:
            await import_jsonl(store, lines)
        assert (caught.value.event_id, caught.value.seq) == ("n2", 2)
        assert (await store.load_run("a", "r")).version == 2


async def test_an_event_redacted_where_the_file_comes_from_is_named() -> None:
    async with open_store("memory:") as one, open_store("memory:") as two:
        await one.append_events("a", "r", *notes(1, 2))
        await import_jsonl(two, await exported(one))
        await one.redact_events("a", "r", [2])
        with pytest.raises(EventConflict, match=r"line 3: .*was redacted where this comes from"):
            await import_jsonl(two, await exported(one))


async def test_other_names() -> None:
    lines = await file_of(2)
    async with open_store("memory:") as store:
        assert (await import_jsonl(store, lines, agent="b"))[0].agent == "b"
        assert (await import_jsonl(store, lines, agent="b", run="t"))[0].run == "t"
        assert seqs(await store.load_run("b", "t")) == seqs(await store.load_run("b", "r")) == [1, 2]
        with pytest.raises(InvalidArgument, match="line 4 begins another run"):
            await import_jsonl(store, [*lines, *lines], run="u")
        assert (await store.load_run("a", "u")).version == 2


async def test_a_file_may_hold_a_run_twice() -> None:
    lines = await file_of(2)
    async with open_store("memory:") as store:
        assert [result.inserted for result in await import_jsonl(store, [*lines, b"\n", *lines])] == [2, 0]


async def test_events_without_a_header_need_names() -> None:
    names: list[dict[str, Any]] = [{}, {"agent": "a"}, {"run": "r"}]
    for options in names:
        async with open_store("memory:") as store:
            with pytest.raises(DecodeError, match=r"line 1 is not the header of a run: .*both agent and run"):
                await import_jsonl(store, [EVENT], **options)


async def test_the_originals_events_are_read() -> None:
    lines = [
        b'{"Type":"user_message","Timestamp":"2026-03-01T10:00:00.123456789+02:00","Data":{"message":"Hi"},"Labels":null}',
        b'{"Type":"tool_call","Timestamp":"2026-03-01T08:00:01Z","Data":{"tool_call_id":"c","tool_name":"f"},"Labels":{"a":"b"}}',
        b'{"type":"newer","timestamp":"2026-03-01T08:00:01Z","data":{"format":1},"format":"any"}',
    ]  # fmt: skip
    async with open_store("memory:") as store:
        for inserted in (3, 0):
            result = await import_jsonl(store, lines, agent="a", run="r")
            assert result == [ImportedRun("a", "r", version=3, read=3, inserted=inserted)]
        assert (await import_jsonl(store, lines[:1], agent="a", run="r"))[0].inserted == 0
        log = (await store.load_run("a", "r")).log
        assert [event.data for event in log] == [
            UserMessage("Hi"),
            ToolCall("c", "f"),
            UnknownPayload("newer", {"format": 1}),
        ]
        assert len({event.event_id for event in log}) == 3
        await import_jsonl(store, lines, agent="a", run="other")
        other = (await store.load_run("a", "other")).log
        assert not {event.event_id for event in log} & {event.event_id for event in other}


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's events are not part of the project")
async def test_all_that_the_original_wrote_is_read() -> None:
    with ORIGINAL.open("rb") as file:
        lines = [msgspec.json.decode(line)["json"].encode() for line in file]
    async with open_store("memory:") as one, open_store("memory:") as two:
        assert (await import_jsonl(one, lines, agent="a", run="r"))[0].inserted == len(lines) == 150
        assert (await import_jsonl(one, lines, agent="a", run="r"))[0].inserted == 0
        ours = await exported(one)
        await import_jsonl(two, ours)
        assert await exported(two) == ours


class Meddling:
    """A store in which something happens to the run between two reads of it."""

    def __init__(self, store: Store, *then: Any) -> None:
        self._store = store
        self._then = list(then)

    async def load_run(self, *args: Any, **options: Any) -> Snapshot:
        snapshot = await self._store.load_run(*args, **options)
        if self._then:
            await self._then.pop(0)()
        return snapshot

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_a_run_that_changes_while_it_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_PAGE_EVENTS", 2)
    lines = await file_of(5)
    async with open_store("memory:") as store, open_store("memory:") as other:
        await import_jsonl(store, lines)
        changing: Any = Meddling(
            store,
            lambda: store.append_events("a", "r", *notes(6)),
            lambda: store.redact_events("a", "r", [1, 4, 5]),
        )
        changed = await exported_run(changing, "a", "r")
        assert len(changed) == 7
        await import_jsonl(other, changed)
        kinds = [event.type for event in (await other.load_run("a", "r")).log]
        assert kinds == ["planner_note"] * 4 + ["redacted"]

        async def refill() -> None:
            await store.delete_run("a", "r")
            await store.append_events("a", "r", *notes(7, 8))

        for change in (refill, lambda: store.delete_run("a", "r")):
            deleting: Any = Meddling(store, change)
            whole = await exported_run(store, "a", "r")
            part: list[bytes] = []

            async def collect(lines: AsyncIterator[bytes], part: list[bytes] = part) -> None:
                async for line in lines:
                    part.append(line)  # noqa: PERF401  # what came before an error must be there

            with pytest.raises(RunDeleted, match="a/r was deleted while it was exported, after seq"):
                await collect(export_run(deleting, "a", "r"))
            assert part == whole[:3]
            await refill()
            await store.append_events("a", "r", *notes(9, 10))


async def test_another_importer_may_be_quicker() -> None:
    lines = await file_of(3)
    async with open_store("memory:") as store:
        quicker: Any = Meddling(store, lambda: store.append_events("a", "r", *notes(1)))
        assert await import_jsonl(quicker, lines) == [ImportedRun("a", "r", version=3, read=3, inserted=2)]
        assert seqs(await store.load_run("a", "r")) == [1, 2, 3]


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/runs.db"])
async def test_the_demo_run_is_what_its_script_writes_and_comes_back(url: str, tmp_path: Path) -> None:
    lines = sample_lines("demo.jsonl")
    assert b"".join(lines) == demo_lines()
    async with open_store(url.format(tmp_path)) as store:
        assert await import_jsonl(store, lines) == [
            ImportedRun(AGENT, RUN, version=45, read=45, inserted=45, verified=True)
        ]
        assert await exported(store) == lines
        snapshot = await store.load_run(AGENT, RUN)
        reader = Reader(snapshot)
        assert list(snapshot.events) == list(snapshot.log)
        assert reader.open_tool_calls() == ()
        assert len(reader.children_of("tc-04")) == 4
        assert len(reader.turns()) == 4
        kinds = {event.type for event in snapshot.log}
        assert kinds >= {"system_message", "thinking", "retry_hint", "annotation", "planner_note", "tool_result"}


def test_samples_by_name() -> None:
    assert [len(sample_lines(name)) for name in SAMPLE_NAMES] == [5, 47]
    with pytest.raises(InvalidArgument, match=r"the samples are support.jsonl, demo.jsonl"):
        sample_lines("other")
