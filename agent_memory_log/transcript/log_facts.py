"""Holds facts about a transcript that only the log has: its events, its recorded signatures and its requests.

A provider's rules read only messages and these facts, never the log. So the same rules work for a plain list.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import SystemMessage
from agent_memory_log.transcript.findings import Path
from agent_memory_log.transcript.names import WireRules


class Origins:
    """The events that messages were built from.

    Attributes:
        part_key: The key in a message of the list that ``parts`` describes.
        owns: For each message, the seq of its first event; 0 if no store has assigned one.
        parts: For each message, the seq of each item in its ``part_key`` list.
    """

    __slots__ = ("owns", "part_key", "parts")

    def __init__(self, part_key: str) -> None:
        self.part_key = part_key
        self.owns: list[int] = []
        self.parts: list[list[int]] = []

    def seq_at(self, path: Path) -> int | None:
        """Return the seq of the event that the value at ``path`` was built from; None if it is unknown."""
        if not path or not isinstance(path[0], int) or not 0 <= path[0] < len(self.owns):
            return None
        index = path[0]
        parts = self.parts[index]
        if len(path) > 2 and path[1] == self.part_key:  # noqa: PLR2004  # message, key, item
            item = path[2]
            if isinstance(item, int) and 0 <= item < len(parts):
                return parts[item] or None
        return self.owns[index] or None

    def events_of(self, index: int) -> set[int]:
        """Return the seqs of all events that a message was built from."""
        return {seq for seq in (self.owns[index], *self.parts[index]) if seq}


class Recorded:
    """Facts from the log that are not in the messages. The builder adds to them as it reads events.

    Attributes:
        signed: For each recorded signature or encrypted block, its number in recording order and its recorded text.
        conflicts: The paths of results that have both an error and a value.
        edited_from: The first position at which the content differs from the content that the model received: the
            index of the message and of the part. Content differs if it was erased or exceeds the size limit.
        requests: For each recorded request, the index of the first message after it, and the fingerprints of its system
            prompt and tools. The fingerprints are None for a request to another provider.
        leading: The instructions before the conversation, for providers that take them outside the messages.
        reasoning_of: The reasoning behind each item that the model made: item id to reasoning id. The reasoning id is
            ``""`` if the reasoning was erased. Only OpenAI Responses uses it.
    """

    __slots__ = ("conflicts", "edited_from", "leading", "reasoning_of", "requests", "signed")

    def __init__(self) -> None:
        self.signed: dict[str, tuple[int, str]] = {}
        self.conflicts: list[Path] = []
        self.edited_from: tuple[int, int] | None = None
        self.requests: list[tuple[int, tuple[str, str] | None]] = []
        self.leading: list[SystemMessage] = []
        self.reasoning_of: dict[str, str] = {}

    def without_positions(self) -> Recorded:
        """Return a copy without the facts that contain positions, for a transcript whose messages moved."""
        copied = Recorded()
        copied.signed = dict(self.signed)
        copied.leading = self.leading
        copied.reasoning_of = dict(self.reasoning_of)
        return copied


class Facts(msgspec.Struct, frozen=True):
    """Facts that a provider's ``validate`` and ``repair`` use in addition to the messages.

    Attributes:
        recorded: Facts from the log; None for a plain list.
        request: The other arguments of the provider call; empty if unknown.
        edited_from: The first position, as in ``Recorded``, at which the content differs from the content that the
            model received; None if no difference is known.
        sent: Fingerprints of the system prompt and tools that the transcript will be sent with; None if unknown.
        rules: The limits of the vendor that gets the transcript; None means the provider's own limits.
        is_own_model: Whether the request names a model that only the provider itself has.
        leading: The fingerprint of the system prompt made from the leading instructions. It applies to requests that
            were recorded without a system prompt.
    """

    recorded: Recorded | None = None
    request: Mapping[str, JsonValue] = {}
    edited_from: tuple[int, int] | None = None
    sent: tuple[str, str] | None = None
    leading: str = ""
    rules: WireRules | None = None
    is_own_model: bool = False

    def stale_positions(self, length: int) -> Callable[[int], bool] | None:
        """Return a function that takes a message's index and returns whether the message is stale.

        A stale message belongs to a request whose system prompt or tools differ from those in ``sent``. ``length`` is
        the number of messages. Returns None if no message is stale.
        """
        if self.recorded is None or self.sent is None:
            return None
        ranges = list(self._stale_ranges(length))
        begins = [begin for begin, _ in ranges]

        def is_stale(position: int) -> bool:
            number = bisect_right(begins, position) - 1
            return number >= 0 and position < ranges[number][1]

        return is_stale if ranges else None

    def _stale_ranges(self, length: int) -> Iterator[tuple[int, int]]:
        requests = self.recorded.requests if self.recorded is not None else []
        for number, (begin, fingerprints) in enumerate(requests):
            end = requests[number + 1][0] if number + 1 < len(requests) else length
            if fingerprints is None or begin >= end:
                continue
            system, tools = fingerprints
            if (system or self.leading, tools) != self.sent:
                yield begin, end
