"""The providers whose messages can be parsed and built.

To add one: a module like ``openai_chat.py``, and its row in ``_PROVIDERS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, cast

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events import Event
from agent_memory_log.fields import describe
from agent_memory_log.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript import openai_chat


class _Provider(Protocol):
    def parse(self, messages: Iterable[Mapping[str, JsonValue]], *, source: str) -> list[Event]: ...

    def build(self, snapshot: Snapshot) -> list[dict[str, JsonValue]]: ...


_PROVIDERS: dict[str, _Provider] = {openai_chat.PROVIDER: openai_chat}


def provider_names() -> tuple[str, ...]:
    """The names ``parse`` and ``build`` take."""
    return tuple(_PROVIDERS)


def parse(messages: Iterable[Mapping[str, JsonValue]], provider: str, *, source: str = "") -> list[Event]:
    """The events of a provider's ``messages``, in order, ready to be appended.

    Nothing is lost: ``build`` gives equal JSON back, whatever the messages hold. What a payload has no field for is
    kept in its ``structured``, a message no payload fits in an ``UnknownPayload``; each event has the message's role as
    a label.

    Event ids stand for ``provider``, ``source`` and the place in ``messages``, never for content: parsing the same
    conversation again, or once it has grown, with the same ``source`` gives the same ids, so that appending stores only
    what is new. Timestamps count up from now by a microsecond, as messages have none.

    Raises ``InvalidArgument`` for an unknown provider, ``DecodeError`` naming the index of a message that is not a map
    or not JSON.

        events = parse([{"role": "user", "content": "Where is my order?"}], "openai-chat", source="run-42")
    """
    module = _find(provider)
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise DecodeError(f"messages must be a list of maps, found {describe(cast('object', messages))}")
    return module.parse(messages, source=source)


def build(snapshot: Snapshot, provider: str) -> list[dict[str, JsonValue]]:
    """The provider's ``messages`` of a run, in append order; a new list that shares nothing with the snapshot.

    Of a run that ``parse`` made, equal JSON. Of any other run, what the model saw or would have seen: system, user and
    assistant messages, tool calls joined to the assistant message before them, tool results (the error message where
    there is no result). Thinking, notes, annotations, redacted events and calls made inside another call of this log
    are left out; ``server_data`` never appears.

    Raises ``InvalidArgument`` for an unknown provider.

        messages = build(await store.load_run("support-agent", "run-42"), "openai-chat")
    """
    return _find(provider).build(snapshot)


def _find(provider: str) -> _Provider:
    found = _PROVIDERS.get(provider) if isinstance(provider, str) else None
    if found is None:
        raise InvalidArgument(f"unknown provider {describe(provider)}; known: {', '.join(_PROVIDERS)}")
    return found
