"""Defines the working copy of a repair: its messages, their origins, and the changes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Any, cast

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.findings import Change, Path, WireMessage, path_order
from agent_memory_log.transcript.json_types import own_map
from agent_memory_log.transcript.log_facts import Origins, Recorded
from agent_memory_log.transcript.names import WireRules

FROM_REPAIR = -1
"""The index of an entry that the repair added."""

INTERRUPTED = "interrupted: no result of this call was recorded"
"""The error text of the result that a repair adds to an unanswered call."""

NO_MESSAGE = "the tool gave no message"
"""The text that a repair adds to an error result without text."""

View = Callable[[WireMessage], tuple[object, list[Any]]]
"""Returns the content of a message that signatures cover: its fields without the parts, and the covered parts."""


class Entry:
    """A message of a draft.

    Attributes:
        index: The message's index in the original transcript; ``FROM_REPAIR`` if the repair added it.
        message: The draft's own copy of the message.
        own: The seq of the message's first event, as in ``Origins``; 0 if unknown.
        parts: The seq of each part of the message.
    """

    __slots__ = ("index", "message", "own", "parts")

    def __init__(self, index: int, message: WireMessage, own: int = 0, parts: Iterable[int] = ()) -> None:
        self.index = index
        self.message = message
        self.own = own
        self.parts = list(parts)


class Draft:
    """A copy of a transcript that a provider's repair changes in place.

    A repair changes ``entries`` and calls ``note`` for each change. ``seen`` is the transcript that the model received;
    it must not be changed.
    """

    def __init__(
        self, original: Sequence[object], *, origins: Origins | None, pristine: Sequence[WireMessage] | None
    ) -> None:
        """Copy the messages of ``original``; messages that are not maps are dropped.

        ``pristine`` is the transcript that the model received, if the log has it. Otherwise ``original`` is used.
        Raises ``DecodeError`` for a message that is not JSON.
        """
        self.changes: list[Change] = []
        self.entries: list[Entry] = []
        self.part_key = origins.part_key if origins else "content"
        self._origins = origins
        for index, message in enumerate(original):
            if not isinstance(message, Mapping):
                self.note("dropped_message", f"a message must be a map, got {describe(message)}", (index,))
                continue
            entry = Entry(index, own_map(cast("object", message), f"messages[{index}]"))
            if origins is not None and index < len(origins.owns):
                entry.own = origins.owns[index]
                entry.parts = list(origins.parts[index])
            self.entries.append(entry)
        # Copies, because the draft changes its messages.
        self.seen: Sequence[WireMessage] = (
            deepcopy([entry.message for entry in self.entries]) if pristine is None else pristine
        )

    def note(self, change: str, message: str, path: Path, seq: int | None = None) -> None:
        """Record a change to the value at ``path`` of the original transcript."""
        if not seq and self._origins is not None:
            seq = self._origins.seq_at(path)
        self.changes.append(Change(change, message, path, seq or None))

    def shorten_name(self, call: WireMessage, rules: WireRules, path: Path, seq: int | None = None) -> None:
        """Give the call at ``path`` a name that the provider accepts."""
        name = call["name"]
        if not rules.allows_name(name):
            call["name"] = rules.short_name(name)
            self.note("renamed_tool", f"the tool name {describe(name)} became {call['name']!r}", path, seq)

    def edited_from(self, view: View) -> tuple[int, int] | None:
        """Return the first position that differs from the transcript that the model received; None if they are equal.

        The position is the message's index and the number of the part that ``view`` returns, or -1 for the message
        itself. Messages added at the end are not changes.
        """
        for position, entry in enumerate(self.entries):
            if position >= len(self.seen):
                return None
            seen = self.seen[position]
            if entry.message == seen:
                continue
            beside, parts = view(entry.message)
            was_beside, were = view(seen)
            if beside != was_beside:
                return position, -1
            same = 0
            while same < min(len(parts), len(were)) and parts[same] == were[same]:
                same += 1
            # Parts added at the end of the last message are not changes either.
            if same < len(were) or (same < len(parts) and position < len(self.seen) - 1):
                return position, same
        return None

    def in_order(self) -> tuple[Change, ...]:
        """Return the changes in the order of the original transcript."""
        return tuple(sorted(self.changes, key=path_order))

    def origins(self) -> Origins:
        """Return the origins of the draft's messages."""
        origins = Origins(self.part_key)
        origins.owns = [entry.own for entry in self.entries]
        origins.parts = [entry.parts for entry in self.entries]
        return origins

    def recorded(self, original: Recorded | None) -> Recorded | None:
        """Return the original facts with the positions of the draft. Facts about repaired problems are left out."""
        if original is None:
            return None
        recorded = original.without_positions()
        # Entries may have moved. The running maximum of the original indexes is sorted, so that bisect can search it.
        newest = list(accumulate((entry.index for entry in self.entries), max))
        for begin, fingerprints in original.requests:
            recorded.requests.append((bisect_left(newest, begin), fingerprints))
        return recorded
