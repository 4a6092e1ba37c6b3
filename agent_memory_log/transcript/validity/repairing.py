"""The working copy of a repair: its messages with where they came from, and what was changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Any, cast

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import NotJson, own_json
from agent_memory_log.transcript.findings import Change, Path, WireMessage, path_order
from agent_memory_log.transcript.log_facts import Origins, Recorded
from agent_memory_log.transcript.names import WireRules

FROM_REPAIR = -1
"""The index of an entry that was not in the transcript given."""

INTERRUPTED = "interrupted: no result of this call was recorded"
"""What a call that nothing answered is answered with, as an error."""

NO_MESSAGE = "the tool gave no message"
"""What an error without any text says."""

View = Callable[[WireMessage], tuple[object, list[Any]]]
"""A message as signatures are bound to it: what it is beside its parts, and the parts that count."""


class Entry:
    """A message of a draft.

    - ``index``: its place in the transcript that was given, ``FROM_REPAIR`` for one that was not in it.
    - ``message``: the draft's own copy.
    - ``own``, ``parts``: the seqs it comes from, as in ``Origins``; 0 where not known. ``parts`` is as long as the
      message's list of parts whenever a provider looks at it.
    """

    __slots__ = ("index", "message", "own", "parts")

    def __init__(self, index: int, message: WireMessage, own: int = 0, parts: Iterable[int] = ()) -> None:
        self.index = index
        self.message = message
        self.own = own
        self.parts = list(parts)


class Draft:
    """A copy of a transcript that a provider's repair changes in place: ``entries``, and ``note`` for each change.

    ``seen`` is the transcript as the model saw it; not to be changed.
    """

    def __init__(
        self, given: Sequence[object], *, origins: Origins | None, pristine: Sequence[WireMessage] | None
    ) -> None:
        """``pristine`` is the transcript as the model saw it, where the log tells; ``given`` is taken for it otherwise.

        What is no map is left out at once. Raises ``DecodeError`` for a message that is not JSON.
        """
        self.changes: list[Change] = []
        self.entries: list[Entry] = []
        self.part_key = origins.part_key if origins else "content"
        self._origins = origins
        for index, message in enumerate(given):
            if not isinstance(message, Mapping):
                self.note("dropped_message", f"a message must be a map, found {describe(message)}", (index,))
                continue
            try:
                own = cast("WireMessage", own_json(cast("object", message)))
            except NotJson as error:
                raise DecodeError(f"messages[{index}]{error.path} {error}") from error
            entry = Entry(index, own)
            if origins is not None and index < len(origins.owns):
                entry.own = origins.owns[index]
                entry.parts = list(origins.parts[index])
            self.entries.append(entry)
        # Copies: what is compared must not change with the draft.
        self.seen: Sequence[WireMessage] = (
            deepcopy([entry.message for entry in self.entries]) if pristine is None else pristine
        )

    def note(self, change: str, message: str, path: Path, seq: int | None = None) -> None:
        """Note a change to what stands at ``where`` in the transcript that was given."""
        if not seq and self._origins is not None:
            seq = self._origins.seq_at(path)
        self.changes.append(Change(change, message, path, seq or None))

    def shorten_name(self, call: WireMessage, rules: WireRules, path: Path, seq: int | None = None) -> None:
        """Give a call that stands at ``where`` a name that the provider takes."""
        name = call["name"]
        if not rules.allows_name(name):
            call["name"] = rules.short_name(name)
            self.note("renamed_tool", f"its name was {describe(name)}, now {call['name']!r}", path, seq)

    def edited_from(self, view: View) -> tuple[int, int] | None:
        """The first place of the draft, as it is now, that is not what the model saw; None: there is none.

        Message and number among the parts that ``view`` leaves; -1: the message itself. What was added at the end is
        not edited.
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
            # Parts added at the end of the last message are not edited either.
            if same < len(were) or (same < len(parts) and position < len(self.seen) - 1):
                return position, same
        return None

    def in_order(self) -> tuple[Change, ...]:
        """The changes, in the order of the transcript that was given."""
        return tuple(sorted(self.changes, key=path_order))

    def origins(self) -> Origins:
        """Where the draft's messages come from."""
        origins = Origins(self.part_key)
        origins.owns = [entry.own for entry in self.entries]
        origins.parts = [entry.parts for entry in self.entries]
        return origins

    def recorded(self, known: Recorded | None) -> Recorded | None:
        """``known`` of the transcript given, for the draft; what was wrong there no longer is."""
        if known is None:
            return None
        recorded = known.without_positions()
        # Entries may have moved: for each place the newest message up to it, which never goes back.
        newest = list(accumulate((entry.index for entry in self.entries), max))
        for begin, fingerprints in known.requests:
            recorded.requests.append((bisect_left(newest, begin), fingerprints))
        return recorded
