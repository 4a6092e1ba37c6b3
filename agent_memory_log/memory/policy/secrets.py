"""The default redactor, which blocks candidates that contain a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Fact, Preference
from agent_memory_log.memory.records.protocols import Refusal
from agent_memory_log.memory.records.record import free_texts
from agent_memory_log.secrets.jsontext import find_in_values

_REASON = "secret"


def stop_secrets(candidate: Candidate, /) -> Candidate | Refusal:
    """Refuse a candidate if any of its texts contains a secret. Otherwise return it unchanged.

    The reason is ``secret:`` and the kind of secret, such as ``secret:password``. It never contains the secret.
    """
    for findings in find_in_values(list(_values(candidate))):
        if findings:
            return Refusal(f"{_REASON}:{findings[0].kind}")
    return candidate


def _values(candidate: Candidate) -> Iterator[tuple[str, str]]:
    """Yield pairs of a key and a text. The key is ``""`` for a text that is not the value of a key."""
    data = candidate.data
    if isinstance(data, (Preference, Fact)):
        yield "", data.key
        yield data.key, data.value
    else:
        yield from _inside("", data.to_map())
    for text in free_texts(candidate):
        yield "", text


def _inside(key: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, item in cast("Mapping[str, object]", value).items():
            yield "", name
            yield from _inside(name, item)
    elif isinstance(value, (list, tuple)):
        for item in cast("list[object]", value):
            yield from _inside(key, item)
    elif isinstance(value, (str, int)) and not isinstance(value, bool):
        yield key, str(value)
