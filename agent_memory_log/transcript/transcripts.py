"""The built transcript: a list of messages that knows where they came from and grows with the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Self

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import SystemMessage
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.conversion.building import Builder
from agent_memory_log.transcript.findings import Change, Loss, Path, WireMessage
from agent_memory_log.transcript.log_facts import Origins, Recorded


class Sending(msgspec.Struct, frozen=True):
    """What a transcript was repaired or cut to be sent with.

    ``request``: the other arguments; ``fingerprints``: those of system prompt and tools, None where not known.
    """

    request: dict[str, JsonValue]
    fingerprints: tuple[str, str] | None


class Transcript(list[WireMessage]):
    """What a provider's ``messages`` (Responses: ``input``) takes: a list of plain maps, which are the caller's own.

    - ``provider``: whose transcript it is.
    - ``snapshot``: the snapshot it was built from; None if it is a plain list that was repaired or cut.
    - ``losses``: what of the run it does not carry.
    """

    __slots__ = ("_builder", "losses", "origins", "provider", "recorded", "sending", "snapshot")

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
        """Made by ``build``, ``repair`` and ``window``."""
        super().__init__(messages)
        self.provider = provider
        self.origins = origins
        self.recorded = recorded
        self.snapshot = snapshot
        self.losses = losses
        self.sending = sending
        self._builder: Builder | None = None

    @classmethod
    def build(
        cls,
        snapshot: Snapshot,
        provider: str,
        new_builder: Callable[[list[WireMessage], int | None], Builder],
        max_result_bytes: int | None,
    ) -> Self:
        """The transcript of a run; see ``agent_memory_log.transcript.build``."""
        built = cls(provider=provider)
        built._begin(snapshot, new_builder(built, max_result_bytes))
        return built

    def _begin(self, snapshot: Snapshot, builder: Builder) -> None:
        builder.take(snapshot.log)
        self._builder = builder
        self.origins = builder.origins
        self.recorded = builder.recorded
        self.losses = builder.losses
        self.snapshot = snapshot

    @property
    def leading(self) -> Sequence[SystemMessage]:
        """The instructions of the run that stand outside the messages."""
        return () if self.recorded is None else self.recorded.leading

    def seq_at(self, path: Path) -> int | None:
        """The seq of the event that a place comes from, as a ``Finding``'s ``where``; None if that is not known.

        Places mean those of the transcript as it was built, whatever its owner did to the list since.
        """
        return None if self.origins is None else self.origins.seq_at(path)

    def update(self, snapshot: Snapshot) -> None:
        """Bring it up to ``snapshot``, a newer one of the same run, in place.

        Costs what is new, unless events were erased meanwhile: then it is built again. Messages that were there stay
        the same objects, the last one may grow. Raises ``InvalidArgument`` for a snapshot of another run or an older
        one, and for a transcript that ``build`` did not make.
        """
        builder, known = self._builder, self.snapshot
        if builder is None or known is None:
            raise InvalidArgument("only a transcript made by build can be brought up to a newer snapshot")
        if (snapshot.agent, snapshot.run, snapshot.types, snapshot.after) != (
            known.agent,
            known.run,
            known.types,
            known.after,
        ):
            raise InvalidArgument(
                f"cannot bring a transcript of {known.agent}/{known.run} up to a snapshot of "
                f"{snapshot.agent}/{snapshot.run}: it must be of the same run, types and after"
            )
        if snapshot.last_seq < known.last_seq:
            raise InvalidArgument(
                f"cannot bring a transcript that ends at seq {known.last_seq} up to a snapshot that ends at "
                f"{snapshot.last_seq}"
            )
        held = len(known.log)
        if snapshot.first_seq == known.first_seq and (
            snapshot.redactions is known.redactions or snapshot.redactions == known.redactions
        ):
            builder.take(snapshot.log[held:])
            self.snapshot = snapshot
            return
        self.clear()
        self._begin(snapshot, type(builder)(self, builder.max_result_bytes))

    def prepend(self, message: WireMessage) -> None:
        """Put a message before all others that no event of its own stands for; it cannot be brought up to date then."""
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
        return type(self)(
            messages,
            provider=self.provider,
            origins=self.origins,
            recorded=self.recorded,
            snapshot=self.snapshot,
            losses=tuple(self.losses),
            sending=self.sending,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)  # elsewhere it is what a provider takes, and no more


class Repair(msgspec.Struct, frozen=True):
    """What ``repair`` gives.

    - ``transcript``: the repaired copy.
    - ``changes``: every change, in the order of the transcript; empty when nothing was wrong.
    - ``request``: the other arguments to send it with, changed where it cannot be valid with them: those given, or else
      those recorded for this provider. ``validate`` and ``repair`` take them for granted if they are given none.
    """

    transcript: Transcript
    changes: tuple[Change, ...]
    request: dict[str, JsonValue]


class Window(msgspec.Struct, frozen=True):
    """What ``window`` gives.

    - ``transcript``: the part of the transcript that is left.
    - ``left_out``: what is not: one ``Loss`` for each range of messages that was cut, and for reasoning bound to them.
    - ``fits``: whether it is within what was asked for; a turn's opening and its last round are never cut.
    - ``request``: the other arguments to send it with: those recorded for this provider, changed where it cannot be
      valid with them, as a thinking budget is where the thinking was cut. ``validate`` takes them for granted.
    """

    transcript: Transcript
    left_out: tuple[Loss, ...]
    fits: bool
    request: dict[str, JsonValue]
