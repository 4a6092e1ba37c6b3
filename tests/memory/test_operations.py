"""Tests that the methods of ``Memory`` and of the clients agree with the table of operations."""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import Any, cast

import msgspec
import pytest

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Candidate, Memory, MemoryClient, Preference, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.operations import METHODS
from agent_memory_log.memory.records.arguments import Operation, check_arguments

VALID: dict[str, dict[str, Any]] = {
    "write": {"candidates": ()},
    "note_stop": {"reason": "why", "phase": "capture"},
    "get": {"key": "language"},
    "update": {"id": "unknown"},
    "delete": {"id": "unknown"},
    "restore": {"id": "unknown"},
    "add": {"content": "Ana likes tea"},
    "add_from_draft": {"draft": Candidate(Preference("language", "english"))},
    "trace": {"id": "unknown"},
    "trace_graph": {"id": "unknown"},
    "neighbours": {"node": "Ana"},
    "paths": {"source": "Ana", "target": "Acme"},
    "ingest": {"turns": (), "source_id": "chat"},
    "forget": {"key": "language"},
    "remember": {"key": "language", "value": "english"},
    "search": {"query": "language"},
    "context": {"query": "language"},
    "link_run": {"agent": "a", "run": "r"},
    "link_runs": {"runs": (("a", "r"),)},
    "history": {"key": "language"},
    "as_of": {"time": datetime.fromisoformat("2026-01-01T00:00:00Z")},
    "explain": {"id": "unknown"},
    "separate": {"id": "unknown"},
    "evolution_events": {"id": "unknown"},
    "derive": {"agent": "a", "run": "r"},
    "ask_consent": {"kind": "fact"},
    "give_consent": {"kind": "fact"},
    "withdraw_consent": {"kind": "fact"},
    "texts_to_embed": {"model": "m", "dimension": 3},
    "store_vectors": {"model": "m", "dimension": 3, "vectors": ()},
    "resolve": {"id": "unknown", "other": "other", "keep": "first"},
    "unresolve": {"id": "unknown", "other": "other"},
    "import_jsonl": {"data": b'{"format":"agent-memory-log-records/1"}\n'},
}
"""The required arguments of each operation."""


@pytest.mark.parametrize("name", METHODS)
def test_method_parameters_match_the_fields_of_the_operation(name: str) -> None:
    operation = METHODS[name]
    for surface in (Memory, MemoryClient, SyncMemory, SyncMemoryClient):
        signature = inspect.signature(getattr(surface, name))
        parameters = list(signature.parameters.values())[1:]
        assert [parameter.name for parameter in parameters] == list(operation.__struct_fields__)
        by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert by_position == list(operation.__struct_fields__[: operation.positional])
        for parameter, field in zip(parameters, msgspec.structs.fields(operation), strict=True):
            assert (parameter.default is parameter.empty) == (field.default is msgspec.NODEFAULT)
            assert parameter.default in (parameter.empty, field.default)
        assert inspect.iscoroutinefunction(getattr(surface, name)) == (surface in (Memory, MemoryClient))


def without_ids(result: Any) -> str:
    """Return the text of a result without ids and times, which differ in each call."""
    if isinstance(result, (tuple, list)):
        return repr([without_ids(item) for item in cast("list[Any]", result)])
    if isinstance(result, msgspec.Struct):
        fields = {name: getattr(result, name) for name in result.__struct_fields__}
        return repr(
            {name: without_ids(value) for name, value in fields.items() if name not in _VARYING and value is not None}
        )
    return repr(result)


_VARYING = {"id", "created", "updated", "valid_from", "valid_until"}


FIELDS = [(name, field) for name, cls in METHODS.items() for field in cls.__struct_fields__ if field != "extractor"]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_wrong_value_is_refused_and_its_field_named(name: str, field: str) -> None:
    operation: type[Operation[Any]] = METHODS[name]
    check_arguments(operation(**VALID.get(name, {})))
    with pytest.raises(InvalidArgument, match=rf"^{field}\b"):
        check_arguments(operation(**{**VALID.get(name, {}), field: object()}))


@pytest.mark.parametrize("name", METHODS)
def test_operation_marks_match_the_required_right(name: str) -> None:
    operation = METHODS[name]
    assert operation.writes == (operation.right != "read")
    assert operation.__doc__
