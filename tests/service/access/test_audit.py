"""Tests of the audit: each change has one line, and no content of an operation can reach it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import Event, UserMessage, new_event
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.memory import Preference, Principal
from agent_memory_log.memory.operations import Forget, ForgetAll, Get, ImportJsonl, Remember, Write
from agent_memory_log.memory.records.arguments import Local, Operation
from agent_memory_log.memory.records.kinds import RecordData
from agent_memory_log.service.access.audit import NAMES, Audit
from agent_memory_log.service.grants import Grant
from agent_memory_log.service.server.logs import JsonLines
from agent_memory_log.service.store_operations import AppendEvents, DeleteRun, LoadRun, RedactEvents
from agent_memory_log.service.table import OPERATIONS
from tests.strategies import texts

GRANT = Grant("app", frozenset({"write"}), Principal("acme", {"user": "42"}))
SECRET = "the-content"
WRITING = [operation for operation in OPERATIONS.values() if operation.writes]


def lines_of(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    assert data.isascii()
    assert not data or data.endswith(b"\n")
    return [msgspec.json.decode(line) for line in data.splitlines()]


def test_a_line_says_who_changed_what(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit")
    events = tuple(new_event(UserMessage(message=SECRET)) for _ in range(3))
    operations: list[tuple[Operation[Any], dict[str, Any]]] = [
        (
            AppendEvents("a", "r", events, expected_version=0, meta={"x": SECRET}),
            {"agent": "a", "run": "r", "events_count": 3},
        ),
        (RedactEvents("a", "r", (1, 2), SECRET), {"agent": "a", "run": "r", "seqs": [1, 2], "seqs_count": 2}),
        (DeleteRun("a", "r"), {"agent": "a", "run": "r"}),
        (Remember(key="diet", value=SECRET, tags=(SECRET,)), {"kind": "preference", "key": "diet", "tags_count": 1}),
        (Forget(id="r1", scope="user"), {"id": "r1", "scope": "user"}),
        (ForgetAll(runs=(("a", "r"),)), {"runs": [["a", "r"]], "runs_count": 1}),
        (Write(()), {}),
        (ImportJsonl(SECRET.encode()), {}),
    ]
    for number, (operation, _) in enumerate(operations):
        audit.record(GRANT, operation, "ok" if number else "version_conflict", f"request-{number}")
    lines = lines_of(tmp_path / "audit")
    for number, (line, (operation, names)) in enumerate(zip(lines, operations, strict=True)):
        assert datetime.fromisoformat(line.pop("time")).tzinfo == UTC
        assert line == {
            "request": f"request-{number}",
            "caller": "app",
            "tenant": "acme",
            "scopes": {"user": "42"},
            "operation": next(name for name, cls in OPERATIONS.items() if cls is type(operation)),
            **names,
            "outcome": "ok" if number else "version_conflict",
        }


def test_reads_have_no_line(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit")
    for operation in (LoadRun("a", "r"), Get(key="k")):
        audit.record(GRANT, operation, "ok", "1")
    assert (tmp_path / "audit").read_bytes() == b""


def test_an_operator_has_no_tenant(tmp_path: Path) -> None:
    Audit(tmp_path / "audit").record(Grant("ops", frozenset({"erase"}), None, ("*",)), DeleteRun("a", "r"), "ok", "1")
    (line,) = lines_of(tmp_path / "audit")
    assert (line["tenant"], line["scopes"]) == (None, {})


def test_the_file_is_private_and_may_be_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    audit, other = Audit(path), Audit(path)
    assert path.stat().st_mode & 0o777 == 0o600
    audit.record(GRANT, DeleteRun("a", "1"), "ok", "1")
    other.record(GRANT, DeleteRun("a", "2"), "ok", "2")
    path.rename(tmp_path / "audit.1")
    audit.record(GRANT, DeleteRun("a", "3"), "ok", "3")
    assert [line["run"] for line in lines_of(tmp_path / "audit.1")] == ["1", "2"]
    assert [line["run"] for line in lines_of(path)] == ["3"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="the audit cannot be written"):
        Audit(tmp_path / "missing" / "audit")
    with pytest.raises(StoreUnavailable, match="the audit cannot be written"):
        Audit(Path("/dev/full")).record(GRANT, DeleteRun("a", "r"), "ok", "1")


@pytest.mark.parametrize("lines", [0, 1])
def test_a_line_that_was_cut_off_does_not_damage_the_next(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "audit"
    audit = Audit(path)
    for number in range(lines + 1):
        audit.record(GRANT, DeleteRun("a", "r"), "ok", str(number))
    os.truncate(path, path.stat().st_size - 5)  # as if the disk was full, or the process was killed
    audit.record(GRANT, DeleteRun("a", "r"), "ok", "next")
    *before, cut, last = path.read_bytes().splitlines()
    assert [msgspec.json.decode(line)["request"] for line in before] == [str(number) for number in range(lines)]
    assert not cut.endswith(b"}")
    assert msgspec.json.decode(last)["request"] == "next"


def test_without_a_file_the_lines_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "agent_memory_log.audit"):
        Audit().record(GRANT, DeleteRun("a", "100%s"), "ok", "1")
    (record,) = caplog.records
    assert msgspec.json.decode(JsonLines().format(record))["run"] == "100%s"


@given(texts(400), texts(400), texts(), st.lists(st.tuples(texts(600), texts(600)), max_size=40))
def test_no_value_forges_a_line_or_makes_it_long(name: str, run: str, key: str, runs: list[tuple[str, str]]) -> None:
    written: list[bytes] = []
    read_end, write_end = os.pipe()
    try:
        audit = Audit(Path(f"/dev/fd/{write_end}"))
        grant = Grant(name, frozenset({"write"}), None, ("*",))
        for operation in (DeleteRun(name, run), ForgetAll(runs=tuple(runs)), Forget(key=key)):
            audit.record(grant, operation, key, run)
            line = os.read(read_end, 1_000_000)
            assert line.isascii()
            assert line.endswith(b"\n")
            assert not any(byte < 0x20 or byte == 0x7F for byte in line[:-1])
            assert len(line) <= 64 * 1024
            written.append(line)
        assert msgspec.json.decode(written[1]).get("runs_count", 0) == len(runs)
    finally:
        os.close(read_end)
        os.close(write_end)


def values(hint: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911  # one return for each form of hint
    """Generate values of a type whose texts all begin with ``SECRET``."""
    origin, arguments = get_origin(hint), get_args(hint)
    content = texts().map(lambda text: SECRET + text)
    if origin is Annotated:
        return st.none() if Local in arguments else values(arguments[0])
    if origin in {Union, UnionType}:
        return st.one_of([values(each) for each in arguments if each is not NoneType])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        if arguments[1:] == (...,):
            return st.lists(values(arguments[0]), min_size=1, max_size=2).map(tuple)
        return st.tuples(*map(values, arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(content, content, min_size=1, max_size=2)
    if hint is Event:
        return content.map(lambda text: new_event(UserMessage(message=text), labels={text[:99]: text}))
    if hint is RecordData:
        return st.tuples(content, content).map(lambda pair: Preference(*pair))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return st.builds(
            hint, **{name: values(each) for name, each in get_type_hints(hint, include_extras=True).items()}
        )
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: content,
        bytes: content.map(str.encode),
        int: st.integers(1, 9),
        float: st.floats(0, 1),
        bool: st.booleans(),
        datetime: st.just(datetime.now(UTC)),
    }
    return simple.get(hint, content)


def operations(cls: type[Operation[Any]]) -> st.SearchStrategy[Operation[Any]]:
    """Generate operations whose fields all hold ``SECRET``, except those in ``NAMES``."""
    hints = get_type_hints(cls, include_extras=True)
    name = st.sampled_from(["a", "r"])
    lists = {"runs": st.just((("a", "r"),)), "seqs": st.just((1,)), "scopes": st.just(("user",))}
    return st.builds(
        cls,
        **{
            field: lists.get(field, name) if field in NAMES else values(hints[field]) for field in cls.__struct_fields__
        },
    )


@pytest.mark.parametrize("cls", WRITING, ids=lambda cls: cls.__name__)
def test_no_content_of_an_operation_reaches_its_line(
    cls: type[Operation[Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("audit") / "audit"
    audit = Audit(path)

    @given(operations(cls))
    def check(operation: Operation[Any]) -> None:
        audit.record(GRANT, operation, "ok", "1")

    check()
    data = path.read_bytes()
    assert data.count(b"\n") >= 1
    assert SECRET.encode() not in data


def test_the_names_are_fields_that_hold_no_free_text() -> None:
    """A new field of a writing operation is either listed as a name here, or stays out of the audit."""
    fields = {field for cls in WRITING for field in cls.__struct_fields__}
    assert fields & NAMES == NAMES == {"agent", "run", "runs", "seqs", "id", "key", "kind", "scope", "scopes"}
