"""Tests of the library's JSONL: it is lossless, byte-stable and resumable, and its errors name the wrong line."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
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

# A slow machine must not fail the test.
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


async def exported(store: Store, **options: Any) -> list[bytes]:
    return [line async for line in export_store(store, **options)]


async def exported_run(store: Store, agent: str, run: str) -> list[bytes]:
    return [line async for line in export_run(store, agent, run)]


def notes(*numbers: int, prefix: str = "n") -> list[Event]:
    return [new_event(PlannerNote(str(n)), timestamp=TIME, event_id=f"{prefix}{n}") for n in numbers]


TIME = datetime(2026, 3, 1, tzinfo=UTC)


async def file_of(count: int, *, run: str = "r") -> list[bytes]:
    """Return an export of ``count`` notes in format 1, which has no end line."""
    return [line.replace(b"log/2", b"log/1") for line in (await ended_file_of(count, run=run))[:-1]]


async def ended_file_of(count: int, *, run: str = "r") -> list[bytes]:
    """Return an export of ``count`` notes in the current format."""
    async with open_store("memory:") as store:
        await store.append_events("a", run, *notes(*range(1, count + 1)), meta={"b": 1, "a": [1.0, 2**70]})
        return await exported_run(store, "a", run)


def seqs(snapshot: Snapshot) -> list[int]:
    return [event.seq for event in snapshot.log]


class Recorded(msgspec.Struct):
    """The content of a run: its meta, its events, and the seqs to redact, if the run has them."""

    meta: Mapping[str, JsonValue]
    events: list[Event]
    redacted: set[int]


recorded = st.builds(
    Recorded,
    json_maps(),
    # Only redact_events appends markers.
    st.lists(events().filter(lambda event: not isinstance(event.data, Redaction)), max_size=6),
    st.sets(st.integers(1, 6), max_size=2),
)


@given(st.dictionaries(st.tuples(names, names), recorded, max_size=3))
async def test_export_import_and_export_give_the_same_bytes(runs: dict[tuple[str, str], Recorded]) -> None:
    async with open_store("memory:") as source, open_store("memory:") as target:
        for (agent, run), content in runs.items():
            unique = list({event.event_id: event for event in content.events}.values())
            appended = await source.append_events(agent, run, *unique, meta=content.meta, reserved=True)
            await source.redact_events(agent, run, {seq for seq in content.redacted if seq <= appended.version})
        lines = await exported(source, include_reserved=True)
        check_jsonl(lines)
        results = await import_jsonl(target, lines, reserved=True)
        assert await exported(target, include_reserved=True) == lines
        assert all(result.read == result.inserted and result.verified for result in results)
        for agent, run in runs:
            assert await target.load_run(agent, run) == await source.load_run(agent, run)
        again = await import_jsonl(target, lines, reserved=True)
        assert [(result.version, result.inserted) for result in again] == [(result.version, 0) for result in results]
        assert await exported(target, include_reserved=True) == lines


async def test_export_has_a_header_events_and_an_end_line() -> None:
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


async def test_runs_are_exported_in_the_order_of_agent_and_run() -> None:
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


async def test_stores_larger_than_a_page_are_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory:") as source, open_store("memory:") as target:
        for run in range(7):
            await source.append_events("a", str(run), *notes(*range(run)))
        lines = await exported(source)
        monkeypatch.setattr(steps, "_PAGE", 2)
        monkeypatch.setattr(jsonl, "_PAGE_EVENTS", 2)
        monkeypatch.setattr(importing, "BATCH_EVENTS", 3)
        assert await exported(source) == lines
        await import_jsonl(target, lines)
        assert await exported(target) == lines


async def test_run_without_events_has_no_lines() -> None:
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
async def test_recreated_run_keeps_its_seqs(url: str, tmp_path: Path) -> None:
    async with open_store("memory:") as source, open_store(url.format(tmp_path)) as target:
        await source.append_events("a", "r", *notes(1, 2, 3, 4, 5))
        await source.delete_run("a", "r")
        await source.append_events("a", "r", *notes(6, 7, 8, 9, 10))
        lines = await exported(source)
        for part in (lines[:3], lines):  # first a file that was cut off, then the complete file
            if part is not lines:
                with pytest.raises(DecodeError, match=r"line 3.*its header has the version 10: events are missing"):
                    await import_jsonl(target, part)
                assert seqs(await target.load_run("a", "r")) == [6, 7]
            else:
                assert await import_jsonl(target, part) == [
                    ImportedRun("a", "r", version=10, read=5, inserted=3, verified=True)
                ]
        assert seqs(await target.load_run("a", "r")) == [6, 7, 8, 9, 10]
        assert await exported(target) == lines
        assert await target.load_run("a", "r") == await source.load_run("a", "r")


async def test_seqs_below_the_version_of_a_deleted_run_change() -> None:
    lines = await file_of(2)
    async with open_store("memory:") as store:
        await store.append_events("a", "r", *notes(1, 2, 3, prefix="other"))
        await store.delete_run("a", "r")
        assert await import_jsonl(store, lines) == [ImportedRun("a", "r", version=5, read=2, inserted=2)]
        assert await import_jsonl(store, lines) == [ImportedRun("a", "r", version=5, read=2, inserted=0)]
        assert seqs(await store.load_run("a", "r")) == [4, 5]


async def test_events_are_appended_after_those_of_an_existing_run() -> None:
    lines = await file_of(3)
    async with open_store("memory:") as store:
        await store.append_events("a", "r", *notes(1, 2, prefix="other"), meta={"mine": 1})
        for inserted in (3, 0):
            assert await import_jsonl(store, lines) == [ImportedRun("a", "r", version=5, read=3, inserted=inserted)]
        snapshot = await store.load_run("a", "r")
        assert [event.event_id for event in snapshot.log] == ["other1", "other2", "n1", "n2", "n3"]
        assert snapshot.meta == {"mine": 1}


@pytest.mark.parametrize("before", [0, 2])
async def test_markers_name_the_same_events_after_an_import(before: int) -> None:
    async with open_store("memory:") as source, open_store("memory:") as target:
        await source.append_events("a", "r", *notes(1, 2, 3))
        await source.redact_events("a", "r", [2], reason="first")
        await source.append_events("a", "r", *notes(5))
        await source.redact_events("a", "r", [1, 5], reason="second")
        lines = await exported(source)
        assert not any(b'"note":"2"' in line or b'"note":"5"' in line for line in lines)

        await target.append_events("a", "r", *notes(*range(before), prefix="other"))
        warm = await target.load_run("a", "r")
        for inserted in (6, 0):
            result = await import_jsonl(target, lines)
            assert result == [ImportedRun("a", "r", version=before + 6, read=6, inserted=inserted, verified=True)]
        cold = await target.load_run("a", "r")
        assert warm.extend(await target.load_run("a", "r", after=warm.last_seq)) == cold
        markers = [event.data.seqs for event in cold.log if isinstance(event.data, Redaction)]
        assert markers == [(before + 2,), (before + 1, before + 5)]
        assert [event.seq for event in cold.log if isinstance(event.data, Redacted)] == [
            before + 1,
            before + 2,
            before + 5,
        ]


async def test_marker_of_a_readable_event_is_refused() -> None:
    marker = new_event(Redaction(seqs=(1,)), event_id="m").to_map()
    lines = [*(await file_of(2)), msgspec.json.encode({**marker, "seq": 3})]
    lines[0] = lines[0].replace(b'"version":2', b'"version":3')
    async with open_store("memory:") as store:
        with pytest.raises(InvalidEvent, match="line 4: redaction: event 1 is not redacted"):
            await import_jsonl(store, lines)
        assert (await store.load_run("a", "r")).version == 2


async def test_redacted_event_stays_redacted_after_an_import() -> None:
    lines = await file_of(3)
    async with open_store("memory:") as store:
        await import_jsonl(store, lines)
        await store.redact_events("a", "r", [2])
        assert (await import_jsonl(store, lines))[0].inserted == 0
        assert isinstance((await store.load_run("a", "r")).log[1].data, Redacted)


async def test_file_cut_at_any_byte_stores_a_prefix_and_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BATCH_EVENTS", 2)
    async with open_store("memory:") as store:
        await import_jsonl(store, [*await file_of(3), *await file_of(2, run="s")])
        content = b"".join(await exported(store))
    for end in range(len(content) + 1):
        part = content[:end].splitlines(keepends=True)
        async with open_store("memory:") as store:
            is_complete = end in (0, len(content) - 1, len(content))
            with contextlib.nullcontext() if is_complete else pytest.raises(DecodeError, match=f"line {len(part)}"):
                await import_jsonl(store, part)
            complete_lines = [line for line in part if line.rstrip(b"\n") in content.split(b"\n")]
            # Every event before the cut is stored, and the error names the line of the cut.
            stored = [*(await store.load_run("a", "r")).log, *(await store.load_run("a", "s")).log]
            assert len(stored) == sum(b'"type"' in line for line in complete_lines)
            await import_jsonl(store, content.splitlines())
            assert b"".join(await exported(store)) == content


async def test_repeated_import_continues_a_failed_import(monkeypatch: pytest.MonkeyPatch) -> None:
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
        (b"[]", "line 4 must be a JSON object, got list"),
        (b"{}", "line 4: an event's type must be non-empty text, got null"),
        (EVENT.replace(b"planner_note", b""), "line 4: an event's type must be non-empty text"),
        (EVENT.replace(b'{"note":"1"}', b"null"), "line 4: planner_note: data is null"),
        (EVENT.replace(b'"1"', b"1"), "line 4: planner_note field 'note' must be text"),
        (EVENT.replace(b"2026-03-01", b"yesterday"), "line 4: planner_note: timestamp"),
        (EVENT.replace(b'"seq":3', b'"seq":"3"'), "line 4: planner_note: seq must be an integer"),
        (EVENT.replace(b'"seq":3', b'"seq":4'), "line 4: the seq must be 3, got 4"),
        (EVENT.replace(b'"seq":3', b'"seq":2'), "line 4: the seq must be 3, got 2"),
        (EVENT.replace(b'"seq":3', b'"seq":0'), "line 4: the seq must be 3, got no seq"),
        (EVENT.replace(b'"seq":3', b'"seq":' + b"9" * 17), "line 4: the seq must be 3, got 9+"),
        (HEADER, "line 4 begins another run, but a/r has only 2 events, .*version 3"),
        (HEADER.replace(b'"b"', b"null"), "line 4: the header's agent must be non-empty text, got null"),
        (HEADER.replace(b'"s"', b'""'), "line 4: the header's run must be non-empty text"),
        (HEADER.replace(b":1,", b":true,"), "line 4: the header's version must be an integer from 1, got bool"),
        (HEADER.replace(b":1,", b":0,"), "line 4: the header's version must be an integer from 1, got int 0"),
        (HEADER.replace(b"{}", b"[]"), "line 4: the header's meta must be a map, got list"),
        (HEADER.replace(b"agent-memory-log/1", b"other/1"), "line 4: format must be agent-memory-log/2, got str"),
        (HEADER.replace(b'"agent-memory-log/1"', b"1"), "line 4: format must be agent-memory-log/2, got int 1"),
    ],
)  # fmt: skip
async def test_invalid_line_is_named_and_events_before_it_are_stored(line: bytes, message: str) -> None:
    lines = [*(await file_of(3))[:3], line]
    async with open_store("memory:") as store:
        with pytest.raises(DecodeError, match=message):
            await import_jsonl(store, lines)
        assert seqs(await store.load_run("a", "r")) == [1, 2]


async def test_wrong_number_of_events_is_refused() -> None:
    lines = [HEADER, EVENT.replace(b":3", b":1"), EVENT.replace(b":3", b":2")]
    async with open_store("memory:") as store:
        with pytest.raises(DecodeError, match="line 3: seq 2 is above the version 1 in the run's header"):
            await import_jsonl(store, lines)
        with pytest.raises(DecodeError, match="after line 1, but b/s has only 0 events"):
            await import_jsonl(store, lines[:1])


async def test_newer_format_is_refused_with_the_advice_to_upgrade() -> None:
    lines = [*await file_of(1), HEADER.replace(b"log/1", b"log/3")]
    async with open_store("memory:") as store:
        with pytest.raises(SchemaTooNew, match=r"line 3: .*upgrade agent-memory-log") as caught:
            await import_jsonl(store, lines)
        assert (caught.value.actual, caught.value.supported) == (3, 2)
        assert (await store.load_run("a", "r")).version == 1


async def test_refused_event_is_named_and_events_before_it_are_stored() -> None:
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


async def test_batches_above_the_stores_limit_are_split() -> None:
    lines = await ended_file_of(100)
    async with open_store("memory:?max_event_bytes=14") as store:  # a batch has 16 times as much
        assert (await import_jsonl(store, lines))[0].inserted == 100
        assert await exported(store) == lines


async def test_different_content_with_the_same_id_is_refused() -> None:
    lines = await file_of(3)
    async with open_store("memory:") as store:
        await store.append_events("a", "r", *notes(9), new_event(PlannerNote("other"), event_id="n2"))
        with pytest.raises(EventConflict, match="line 3: ") as caught:
            await import_jsonl(store, lines)
        assert (caught.value.event_id, caught.value.seq) == ("n2", 2)
        assert (await store.load_run("a", "r")).version == 2


async def test_event_redacted_only_in_the_source_is_refused() -> None:
    async with open_store("memory:") as source, open_store("memory:") as target:
        await source.append_events("a", "r", *notes(1, 2))
        await import_jsonl(target, await exported(source))
        await source.redact_events("a", "r", [2])
        with pytest.raises(EventConflict, match=r"line 3: .*the event is redacted in the source"):
            await import_jsonl(target, await exported(source))


async def test_agent_and_run_replace_those_of_the_header() -> None:
    lines = await file_of(2)
    async with open_store("memory:") as store:
        assert (await import_jsonl(store, lines, agent="b"))[0].agent == "b"
        assert (await import_jsonl(store, lines, agent="b", run="t"))[0].run == "t"
        assert seqs(await store.load_run("b", "t")) == seqs(await store.load_run("b", "r")) == [1, 2]
        with pytest.raises(InvalidArgument, match="line 4 begins another run"):
            await import_jsonl(store, [*lines, *lines], run="u")
        assert (await store.load_run("a", "u")).version == 2


async def test_file_may_contain_the_same_run_twice() -> None:
    lines = await file_of(2)
    async with open_store("memory:") as store:
        assert [result.inserted for result in await import_jsonl(store, [*lines, b"\n", *lines])] == [2, 0]


async def test_events_without_a_header_need_agent_and_run() -> None:
    names: list[dict[str, Any]] = [{}, {"agent": "a"}, {"run": "r"}]
    for options in names:
        async with open_store("memory:") as store:
            with pytest.raises(DecodeError, match=r"line 1 is not the header of a run, .*if it gets agent and run"):
                await import_jsonl(store, [EVENT], **options)


async def test_events_of_the_go_package_are_imported() -> None:
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


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the events of the Go package are not part of the project")
async def test_all_recorded_events_of_the_go_package_are_imported() -> None:
    with ORIGINAL.open("rb") as file:
        original_lines = [msgspec.json.decode(line)["json"].encode() for line in file]
    async with open_store("memory:") as source, open_store("memory:") as target:
        assert (
            (await import_jsonl(source, original_lines, agent="a", run="r"))[0].inserted == len(original_lines) == 150
        )
        assert (await import_jsonl(source, original_lines, agent="a", run="r"))[0].inserted == 0
        lines = await exported(source)
        await import_jsonl(target, lines)
        assert await exported(target) == lines


class Meddling:
    """A store that runs the next action after each read of a run."""

    def __init__(self, store: Store, *actions: Any) -> None:
        self._store = store
        self._actions = list(actions)

    async def load_run(self, *args: Any, **options: Any) -> Snapshot:
        snapshot = await self._store.load_run(*args, **options)
        if self._actions:
            await self._actions.pop(0)()
        return snapshot

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_run_may_change_during_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
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
            complete = await exported_run(store, "a", "r")
            part: list[bytes] = []

            async def collect(lines: AsyncIterator[bytes], part: list[bytes] = part) -> None:
                async for line in lines:
                    part.append(line)  # noqa: PERF401  # keeps the lines before an error

            with pytest.raises(RunDeleted, match="a/r was deleted during the export, after seq"):
                await collect(export_run(deleting, "a", "r"))
            assert part == complete[:3]
            await refill()
            await store.append_events("a", "r", *notes(9, 10))


async def test_import_beside_another_importer_stores_each_event_once() -> None:
    lines = await file_of(3)
    async with open_store("memory:") as store:
        meddling: Any = Meddling(store, lambda: store.append_events("a", "r", *notes(1)))
        assert await import_jsonl(meddling, lines) == [ImportedRun("a", "r", version=3, read=3, inserted=2)]
        assert seqs(await store.load_run("a", "r")) == [1, 2, 3]


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/runs.db"])
async def test_demo_sample_equals_its_script_and_can_be_imported(url: str, tmp_path: Path) -> None:
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


def test_samples_are_loaded_by_name() -> None:
    assert [len(sample_lines(name)) for name in SAMPLE_NAMES] == [5, 47]
    with pytest.raises(InvalidArgument, match=r"the samples are support.jsonl, demo.jsonl"):
        sample_lines("other")
