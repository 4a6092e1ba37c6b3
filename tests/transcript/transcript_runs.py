"""Helpers for the tests of one provider's rules: list findings and check the guarantees of repair."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from agent_memory_log import JsonValue
from agent_memory_log.transcript import build, parse
from agent_memory_log.transcript.providers import repair, validate
from agent_memory_log.transcript.transcripts import Repair, Transcript
from tests.transcript.transcripts import Message, maps, snapshot_of

ODD_VALUES: list[Any] = [0, 1.0, False, True, None, "x", "", " ", {}, {"a": 1}, [], [[]], ["x", None], 10**40]


def nearly(values_by_key: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Message]:
    """Return a strategy for maps of all these keys with values of their strategies, and sometimes for odder maps."""
    return st.fixed_dictionaries(dict(values_by_key)) | maps(values_by_key)


def rules_of(
    transcript: Sequence[Mapping[str, JsonValue]], provider: str, request: Mapping[str, JsonValue] | None = None
) -> list[tuple[str, int | None]]:
    """Return the rules that a transcript breaks, each with the seq of the event."""
    findings = validate(transcript, provider, request=request)
    assert all(finding.message and finding.path for finding in findings)
    return [(finding.rule, finding.seq) for finding in findings]


def assert_repaired(
    transcript: Sequence[Mapping[str, JsonValue]],
    provider: str,
    judge: Callable[[Sequence[object]], None] | None = None,
    request: Mapping[str, JsonValue] | None = None,
) -> Repair:
    """Check that repair is deterministic and idempotent, returns a valid copy, and leaves its input unchanged."""
    before = copy.deepcopy(list(transcript))
    findings = validate(transcript, provider, request=request)
    repaired = repair(transcript, provider, request=request)
    assert list(transcript) == before
    assert validate(repaired.transcript, provider, request=repaired.request) == []
    assert validate(list(repaired.transcript), provider, request=repaired.request) == []
    assert bool(repaired.changes) >= bool(findings)
    assert list(repair(copy.deepcopy(transcript), provider, request=request).transcript) == list(repaired.transcript)
    for again in (repaired.transcript, list(repaired.transcript)):
        second = repair(again, provider, request=repaired.request)
        assert second.changes == ()
        assert list(second.transcript) == list(repaired.transcript)
    if judge is not None:
        judge(list(repaired.transcript))
    return repaired


def changes_of(repaired: Repair) -> list[str]:
    """Return the names of the changes that repair made."""
    return [change.change for change in repaired.changes]


def built_from(messages: Sequence[Message], provider: str) -> Transcript:
    """Parse the messages and build a transcript from the events."""
    return build(snapshot_of(parse(messages, provider)), provider)
