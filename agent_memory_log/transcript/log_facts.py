"""What only the log can tell about a transcript: which events it comes from, and how it was recorded and requested."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import SystemMessage
from agent_memory_log.transcript.findings import Path


class Origins:
    """The events that messages come from: for each message the seq it begins with, and those of its parts.

    ``part_key`` names the list in a message whose items ``parts`` speaks of. Seqs are 0 where no store gave one.
    """

    __slots__ = ("owns", "part_key", "parts")

    def __init__(self, part_key: str) -> None:
        self.part_key = part_key
        self.owns: list[int] = []
        self.parts: list[list[int]] = []

    def seq_at(self, path: Path) -> int | None:
        """The seq of the event that the place ``where`` comes from; None if that is not known."""
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
        """The seqs of all events that a message comes from."""
        return {seq for seq in (self.owns[index], *self.parts[index]) if seq}


class Recorded:
    """What the log knows beside the messages; grows with the builder.

    - ``signed``: each signature or encrypted block that was recorded, with its number in the order of recording and the
      text it was recorded with.
    - ``conflicts``: the places of results that have both an error and a value.
    - ``edited_from``: the first place whose content is not what the model saw: erased, or over the size limit.
    - ``requests``: the index of the first message that came back from a request, and the fingerprints of the system
      prompt and tools it was made with; None for a request to another provider.
    - ``leading``: the instructions that stand before the conversation, for providers that have them outside.
    - ``reasoning_of``: the reasoning each item of the model was made with, by their ids; ``""`` for reasoning that was
      erased from the log. Only Responses has it.
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
        """A copy of what names no place in the transcript, for one whose messages moved."""
        copied = Recorded()
        copied.signed = dict(self.signed)
        copied.leading = self.leading
        copied.reasoning_of = dict(self.reasoning_of)
        return copied


class Facts(msgspec.Struct, frozen=True):
    """What ``validate`` and ``repair`` of a provider go by beside the messages themselves.

    - ``recorded``: what the log knows; None for a plain list.
    - ``request``: the other arguments of the call the transcript is for; empty where not known.
    - ``edited_from``: the first place, message and part, whose content is not what the model saw; None if there is none
      that is known.
    - ``sent``: fingerprints of system prompt and tools the transcript will be sent with; None where not known.
    - ``leading``: the fingerprint of the system prompt that the instructions before the conversation make: that of
      requests that were recorded without one.
    """

    recorded: Recorded | None = None
    request: Mapping[str, JsonValue] = {}
    edited_from: tuple[int, int] | None = None
    sent: tuple[str, str] | None = None
    leading: str = ""

    def stale_positions(self, length: int) -> Callable[[int], bool] | None:
        """Whether a message, of ``length``, came back from another system prompt or other tools; None: none did."""
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
