"""Defines ``Transcript``, a list of messages that stores their origins and can be updated when the run grows.

A transcript keeps its builder, so that an update reads only the new events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Self

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import SystemMessage
from agent_memory_log.snapshot import Snapshot, require_snapshot
from agent_memory_log.transcript.conversion.building import Builder
from agent_memory_log.transcript.conversion.compacting import compacted
from agent_memory_log.transcript.findings import Change, Loss, Path, WireMessage
from agent_memory_log.transcript.log_facts import Origins, Recorded


class Sending(msgspec.Struct, frozen=True):
    """The arguments that a transcript was repaired or cut for.

    Attributes:
        request: The other arguments of the call.
        fingerprints: The fingerprints of the system prompt and of the tools; None if unknown.
    """

    request: dict[str, JsonValue]
    fingerprints: tuple[str, str] | None


class Transcript(list[WireMessage]):
    """The messages for a provider call, as a list of plain maps that the caller may change.

    Attributes:
        provider: The provider's name.
        snapshot: The snapshot that the transcript was built from; None for a repaired or cut plain list.
        losses: The content of the run that the transcript does not contain.
    """

    __slots__ = ("_builder", "keeps_partial", "losses", "origins", "provider", "recorded", "sending", "snapshot")

    def __init__(
        self,
        messages: Iterable[WireMessage] = (),
        *,
        provider: str,
        origins: Origins | None = None,
        recorded: Recorded | None = None,
        snapshot: Snapshot | None = None,
        losses: Sequence[Loss] = (),
        sending: Sending | None = None,
    ) -> None:
        """Create a transcript; ``build``, ``repair`` and ``window`` call this."""
        super().__init__(messages)
        self.provider = provider
        self.origins = origins
        self.recorded = recorded
        self.snapshot = snapshot
        self.losses = losses
        self.sending = sending
        self.keeps_partial = False
        self._builder: Builder | None = None

    @classmethod
    def build(
        cls,
        snapshot: Snapshot,
        provider: str,
        new_builder: Callable[[list[WireMessage], int | None], Builder],
        max_result_bytes: int | None,
        *,
        keeps_partial: bool = False,
    ) -> Self:
        """Return the transcript of a run; see ``agent_memory_log.transcript.build``."""
        built = cls(provider=provider)
        built.keeps_partial = keeps_partial
        built._begin(snapshot, new_builder(built, max_result_bytes))
        return built

    def _begin(self, snapshot: Snapshot, builder: Builder) -> None:
        builder.keeps_partial = self.keeps_partial
        builder.take(snapshot.log)
        compaction = builder.compaction
        if compaction is not None:
            self.clear()
            builder = type(builder)(self, builder.max_result_bytes)
            builder.keeps_partial = self.keeps_partial
            builder.take(compacted(snapshot.log, compaction, self.provider))
        self._builder = builder
        self.origins = builder.origins
        self.recorded = builder.recorded
        self.losses = builder.losses
        self.snapshot = snapshot

    @property
    def leading(self) -> Sequence[SystemMessage]:
        """The run's instructions that belong outside the messages."""
        return () if self.recorded is None else self.recorded.leading

    def seq_at(self, path: Path) -> int | None:
        """Return the seq of the event at ``path``, for example a finding's path; None if it is unknown.

        Paths refer to the transcript as it was built, even if the caller changed the list later.
        """
        return None if self.origins is None else self.origins.seq_at(path)

    def update(self, snapshot: Snapshot) -> None:
        """Update the transcript in place to ``snapshot``, a newer snapshot of the same run.

        Only the new events are read. Existing messages stay the same objects, and only the last one may grow. If events
        were erased, or if the new events have a ``Compaction``, the whole transcript is built again.

        Args:
            snapshot: The newer snapshot.

        Raises:
            InvalidArgument: The snapshot is older or of another run, or ``build`` did not make this transcript.
        """
        require_snapshot(snapshot)
        builder, current = self._builder, self.snapshot
        if builder is None or current is None:
            raise InvalidArgument("only a transcript made by build can be updated to a newer snapshot")
        if (snapshot.agent, snapshot.run, snapshot.types, snapshot.after) != (
            current.agent,
            current.run,
            current.types,
            current.after,
        ):
            raise InvalidArgument(
                f"cannot update a transcript of {current.agent}/{current.run} to a snapshot of "
                f"{snapshot.agent}/{snapshot.run}; the snapshot must have the same run, types and after"
            )
        if snapshot.last_seq < current.last_seq:
            raise InvalidArgument(
                f"cannot update a transcript that ends at seq {current.last_seq} to a snapshot that ends at "
                f"{snapshot.last_seq}"
            )
        length = len(current.log)
        if snapshot.first_seq == current.first_seq and (
            snapshot.redactions is current.redactions or snapshot.redactions == current.redactions
        ):
            compaction = builder.compaction
            builder.take(snapshot.log[length:])
            if builder.compaction is compaction:
                self.snapshot = snapshot
                return
        self.clear()
        self._begin(snapshot, type(builder)(self, builder.max_result_bytes))

    def after(self, seq: int) -> Self:
        """Return the messages of the events after ``seq``. This transcript must come from ``build``."""
        if self.origins is None or self.recorded is None:
            raise InvalidArgument("only a transcript made by build knows the events of its messages")
        origins = Origins(self.origins.part_key)
        later = [index for index, own in enumerate(self.origins.owns) if own > seq]
        for index in later:
            origins.owns.append(self.origins.owns[index])
            origins.parts.append(self.origins.parts[index])
        copied = self._copied(self[index] for index in later)
        copied.origins = origins
        copied.recorded = self.recorded.without_positions()
        return copied

    def prepend(self, message: WireMessage) -> None:
        """Insert a message without an event at the beginning. After this, the transcript cannot be updated."""
        self.insert(0, message)
        if self.origins is not None:
            self.origins.owns.insert(0, 0)
            self.origins.parts.insert(0, [])
        self._builder = None

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self._copied(deepcopy(list(self), memo))

    def __copy__(self) -> Self:
        return self._copied(self)

    def _copied(self, messages: Iterable[WireMessage]) -> Self:
        copied = type(self)(
            messages,
            provider=self.provider,
            origins=self.origins,
            recorded=self.recorded,
            snapshot=self.snapshot,
            losses=tuple(self.losses),
            sending=self.sending,
        )
        copied.keeps_partial = self.keeps_partial
        return copied

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)  # a pickled transcript is a plain list of messages


class Repair(msgspec.Struct, frozen=True):
    """The result of ``repair``.

    Attributes:
        transcript: The repaired copy.
        changes: Every change, in the order of the transcript; empty if the transcript was valid.
        request: The other arguments to send: the caller's, or those recorded for this provider. Arguments that conflict
            with the repaired transcript are removed. ``validate`` and ``repair`` use them by default.
    """

    transcript: Transcript
    changes: tuple[Change, ...]
    request: dict[str, JsonValue]


class Window(msgspec.Struct, frozen=True):
    """The result of ``window``.

    Attributes:
        transcript: The messages that stay.
        left_out: One ``Loss`` for each removed range of messages, and for removed reasoning.
        fits: Whether the transcript is within the limits. It can be too long because the newest turn's opening and last
            round always stay.
        request: The other arguments to send, from the latest request to this provider. Arguments that conflict with the
            cut transcript are removed, for example a thinking budget when the messages that stay have no thinking.
            ``validate`` uses them by default.
    """

    transcript: Transcript
    left_out: tuple[Loss, ...]
    fits: bool
    request: dict[str, JsonValue]
