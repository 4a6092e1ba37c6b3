"""Tests of the error classes: the documented tree, stable codes, and pickling."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from agent_memory_log import errors
from agent_memory_log.errors import AgentMemoryLogError

ALL: list[type[AgentMemoryLogError]] = [
    AgentMemoryLogError,
    *(
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, AgentMemoryLogError) and kind is not AgentMemoryLogError
    ),
]

CODES = {
    "AccessDenied": "access_denied",
    "AgentMemoryLogError": "agent_memory_log_error",
    "BackendNotFound": "backend_not_found",
    "CursorOutOfRange": "cursor_out_of_range",
    "DecodeError": "decode_error",
    "EventConflict": "event_conflict",
    "EventTooLarge": "event_too_large",
    "InvalidArgument": "invalid_argument",
    "InvalidEvent": "invalid_event",
    "MemoryStopped": "memory_stopped",
    "ModelEmpty": "llm_empty",
    "ModelFailed": "llm_failed",
    "ModelInvalidJson": "llm_invalid_json",
    "ModelInvalidSchema": "llm_invalid_schema",
    "ModelTimeout": "llm_timeout",
    "ModelUnavailable": "llm_unavailable",
    "EventsMissing": "events_missing",
    "ReplayDivergence": "replay_divergence",
    "RunDeleted": "run_deleted",
    "RunExpired": "run_expired",
    "SchemaTooNew": "schema_too_new",
    "StoreClosed": "store_closed",
    "StoreCorrupt": "store_corrupt",
    "StoreUnavailable": "store_unavailable",
    "ToolFailed": "tool_failed",
    "TooManyRequests": "too_many_requests",
    "Unauthenticated": "unauthenticated",
    "VersionConflict": "version_conflict",
}
"""The published codes. Users match on them."""

EXAMPLES: list[AgentMemoryLogError] = [
    errors.InvalidEvent("m", field="labels.a"),
    errors.VersionConflict("m", expected=1, actual=2),
    errors.EventConflict("m", event_id="e", seq=3),
    errors.EventTooLarge("m", size=4, limit=5),
    errors.EventsMissing("m", first_seq=8, last_seq=9),
    errors.ReplayDivergence("m", reason="other_tool", seq=3),
    errors.TooManyRequests("m", retry_after=0.5),
    errors.ToolFailed("m", tool_name="t", tool_call_id="c"),
    errors.SchemaTooNew("m", actual=6, supported=7),
    errors.MemoryStopped("m", reason="scope_denied:user"),
    *(kind("m") for kind in ALL if "__init__" not in vars(kind)),
]


def documented_tree() -> set[tuple[str, str]]:
    """Return each class of the docstring's tree with the class above it."""
    pairs: set[tuple[str, str]] = set()
    above = ["AgentMemoryLogError"]
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│ ]*)[├└]── (\w+)", line)
        if match:
            depth = len(match[1]) // 4 + 1
            above = [*above[:depth], match[2]]
            pairs.add((match[2], above[depth - 1]))
    return pairs


def test_documented_tree_is_the_real_one() -> None:
    assert documented_tree() == {
        (kind.__name__, kind.__bases__[0].__name__) for kind in ALL if kind is not AgentMemoryLogError
    }
    assert all(len(kind.__bases__) == 1 for kind in ALL)


def test_codes_are_the_published_ones() -> None:
    assert {kind.__name__: kind.code for kind in ALL} == CODES
    assert len(set(CODES.values())) == len(ALL)
    assert all("code" in vars(kind) for kind in ALL)


def test_every_error_is_exported_and_described() -> None:
    for kind in ALL:
        assert getattr(errors, kind.__name__) is kind
        assert kind.__doc__


def test_every_error_has_an_example() -> None:
    assert {type(error) for error in EXAMPLES} == set(ALL)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_errors_keep_all_attributes(error: AgentMemoryLogError, protocol: int) -> None:
    error.__cause__ = ValueError("a driver's error, which may not pickle")
    error.add_note("a note")
    for twin in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error) == "m"
        assert twin.args == error.args
        assert vars(twin) == vars(error)
        assert twin.code == error.code
        assert twin.__cause__ is None
