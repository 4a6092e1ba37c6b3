"""What tests of one provider's rules share: transcripts of messages, what is wrong with them, what repair promises."""

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


def nearly(known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Message]:
    """Maps of all of these keys with what belongs there, or now and then of some of them with anything."""
    return st.fixed_dictionaries(dict(known)) | maps(known)


def rules_of(
    transcript: Sequence[Mapping[str, JsonValue]], provider: str, request: Mapping[str, JsonValue] | None = None
) -> list[tuple[str, int | None]]:
    """The rules a transcript breaks, each with the seq of the event."""
    findings = validate(transcript, provider, request=request)
    assert all(finding.message and finding.path for finding in findings)
    return [(finding.rule, finding.seq) for finding in findings]


def assert_repaired(
    transcript: Sequence[Mapping[str, JsonValue]],
    provider: str,
    judge: Callable[[Sequence[object]], None] | None = None,
    request: Mapping[str, JsonValue] | None = None,
) -> Repair:
    """Repair gives what validates, by a copy, the same each time, and nothing to do a second time."""
    before = copy.deepcopy(list(transcript))
    found = validate(transcript, provider, request=request)
    repaired = repair(transcript, provider, request=request)
    assert list(transcript) == before
    assert validate(repaired.transcript, provider, request=repaired.request) == []
    assert validate(list(repaired.transcript), provider, request=repaired.request) == []
    assert bool(repaired.changes) >= bool(found)
    assert list(repair(copy.deepcopy(transcript), provider, request=request).transcript) == list(repaired.transcript)
    for again in (repaired.transcript, list(repaired.transcript)):
        second = repair(again, provider, request=repaired.request)
        assert second.changes == ()
        assert list(second.transcript) == list(repaired.transcript)
    if judge is not None:
        judge(list(repaired.transcript))
    return repaired


def changes_of(repaired: Repair) -> list[str]:
    """The names of what repair did."""
    return [change.change for change in repaired.changes]


def built_from(messages: Sequence[Message], provider: str) -> Transcript:
    """The transcript of the run of these messages."""
    return build(snapshot_of(parse(messages, provider)), provider)
