"""Cuts long transcripts to a limit so that the rest stays valid.

A cut removes whole turns from the beginning. The next turn may be partly too long: its opening and its latest rounds
stay. A round is model output and its results.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.transcript.findings import Loss, Path, WireMessage
from agent_memory_log.transcript.json_types import is_list
from agent_memory_log.transcript.log_facts import Origins, Recorded
from agent_memory_log.transcript.transcripts import Sending, Transcript, Window

_BYTES_A_TOKEN = 4


class Seams(NamedTuple):
    """The message indexes at which a transcript may be cut, in ascending order.

    Attributes:
        head: The number of messages at the beginning that always stay, such as system messages.
        turns: The first index of each turn. The messages from this index to the end are a valid transcript.
        openings: For each turn, the index after its opening, the user's messages at its beginning. The opening and all
            messages from a later round on are also a valid transcript.
        rounds: The first index of each round.
    """

    head: int
    turns: list[int]
    openings: list[int]
    rounds: list[int]


class Side(NamedTuple):
    """The speaker of a message: ``"system"``, ``"user"``, ``"model"`` or ``"tool"``.

    ``opened`` and ``closed`` identify a pair that no cut may separate, such as a call and its result.
    """

    speaker: str
    opened: tuple[str, str] | None = None
    closed: tuple[str, str] | None = None


_SPEAKERS = {"system": "system", "developer": "system", "user": "user", "assistant": "model"}


def side_of_role(role: object) -> Side:
    """Return the side of a message with this role."""
    return Side(_SPEAKERS.get(role, "tool") if isinstance(role, str) else "tool")


def find_seams(
    messages: Sequence[WireMessage], side_of: Callable[[WireMessage], Side], *, joins_model: bool = False
) -> Seams:
    """Return the positions at which a transcript may be cut. No position is inside a pair from ``Side``.

    Args:
        messages: The messages of the transcript.
        side_of: Returns the side of a message.
        joins_model: Whether consecutive messages of the model belong to one round. The default is False.
    """
    sides = [side_of(message) for message in messages]
    head = next((position for position, side in enumerate(sides) if side.speaker != "system"), len(sides))
    turns: list[int] = []
    openings: list[int] = []
    rounds: list[int] = []
    pending: Counter[tuple[str, str]] = Counter()
    before = ""
    for position in range(head, len(sides)):
        speaker, opened, closed = sides[position]
        if before == "opening" and speaker in ("user", "system"):
            openings[-1] = position + 1
            continue
        if speaker == "user" and not pending:
            turns.append(position)
            openings.append(position + 1)
            before = "opening"
            continue
        if speaker == "model" and not pending and not (joins_model and before == "model"):
            rounds.append(position)
        before = speaker
        if opened is not None:
            pending[opened] += 1
        elif closed is not None and pending[closed]:
            pending[closed] -= 1
        if closed is not None and not pending[closed]:
            del pending[closed]
    return Seams(head, turns, openings, rounds)


class _Measure(NamedTuple):
    """The total size from each message to the end, and the limit for it."""

    left: list[int]
    limit: int


def cut_transcript(
    full: Transcript,
    seams: Seams,
    without_reasoning: Callable[[WireMessage], WireMessage | None],
    max_events: int | None,
    max_tokens: int | None,
    since_turn: int | None,
    count_tokens: Callable[[WireMessage], int] | None,
    sending: Sending,
    sendable: Callable[[Sequence[object], Mapping[str, JsonValue]], dict[str, JsonValue]],
) -> Window:
    """Return the newest part of ``full`` that is within the limits; see ``agent_memory_log.transcript.window``."""
    measures: list[_Measure] = []
    if max_events is not None:
        measures.append(_measure([_events_of(full, index) for index in range(len(full))], max_events))
    if max_tokens is not None:
        count = count_tokens or estimate_tokens
        measures.append(_measure([count(message) for message in full], max_tokens))
    ranges, fits = _ranges(len(full), seams, measures, _first_turn(seams, since_turn))
    indexes = [index for begin, end in ranges for index in range(begin, end)]
    left_out = list(_gaps(full, ranges))
    messages: list[WireMessage] = []
    positions: dict[int, int] = {}
    first_gap = next((index for index, position in enumerate(indexes) if index != position), len(indexes))
    for number, index in enumerate(indexes):
        message = full[index]
        left = without_reasoning(message) if number >= first_gap else message
        if left is not message:
            seq = full.seq_at((index,))
            left_out.append(Loss("reasoning", f"reasoning in message {index}, signed with messages that were cut", seq))
        if left is not None:
            positions[index] = len(messages)
            messages.append(left)
    request = sendable(messages, sending.request) if left_out else sending.request
    cut = Transcript(
        messages,
        provider=full.provider,
        origins=_origins(full, positions, messages),
        recorded=_recorded(full.recorded, positions, len(messages)),
        snapshot=full.snapshot,
        losses=(*full.losses, *left_out),
        sending=Sending(request, sending.fingerprints),
    )
    return Window(cut, tuple(left_out), fits, dict(request))


def estimate_tokens(message: WireMessage) -> int:
    """Return an estimate of a message's tokens: a quarter of its JSON bytes, rounded up."""
    return -(-len(encode_json(message)) // _BYTES_A_TOKEN)


def _ranges(
    length: int, seams: Seams, measures: Sequence[_Measure], first_turn: int
) -> tuple[list[tuple[int, int]], bool]:
    """Return the ranges of messages that stay, and whether they are within the limits."""

    def fits(*ranges: tuple[int, int]) -> bool:
        sizes = (sum(measure.left[begin] - measure.left[end] for begin, end in ranges) for measure in measures)
        return all(size <= measure.limit for size, measure in zip(sizes, measures, strict=True))

    head = (0, seams.head)
    if not seams.turns:
        return [(0, length)], fits((0, length))
    for number in range(first_turn, len(seams.turns)):
        # Messages before the first turn belong to it.
        tail = (seams.turns[number] if number else seams.head, length)
        if fits(head, tail):
            return [head, tail], True
        # The turn does not fit, but its opening and its latest rounds may.
        tails, opening = _partial_turn(seams, number, length)
        fitting = next((tail for tail in tails if fits(head, opening, tail)), None)
        if fitting is not None:
            return [head, opening, fitting], True
    tails, opening = _partial_turn(seams, len(seams.turns) - 1, length)
    return [head, opening, tails[-1]], False


def _partial_turn(seams: Seams, number: int, length: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Return the ranges that may follow the opening of a turn, the longest first, and the opening."""
    opening = (seams.turns[number], seams.openings[number])
    end = length if number + 1 == len(seams.turns) else seams.turns[number + 1]
    rounds = seams.rounds[bisect_right(seams.rounds, opening[1]) : bisect_left(seams.rounds, end)]
    return [(begin, length) for begin in rounds or [opening[1]]], opening


def _first_turn(seams: Seams, since_turn: int | None) -> int:
    if since_turn is None:
        return 0
    turns = len(seams.turns)
    if since_turn < 0:
        return max(turns + since_turn, 0)
    if since_turn > turns:
        raise InvalidArgument(f"since_turn is {since_turn}, but the transcript has {turns} turns")
    return since_turn - 1


def _measure(sizes: list[int], limit: int) -> _Measure:
    left = [0]
    for size in reversed(sizes):
        left.append(left[-1] + size)
    left.reverse()
    return _Measure(left, limit)


def _events_of(transcript: Transcript, index: int) -> int:
    event_count = 0 if transcript.origins is None else len(transcript.origins.events_of(index))
    if event_count:
        return event_count
    parts = [transcript[index].get(key) for key in ("content", "parts", "tool_calls")]
    return max(sum(len(part) for part in parts if is_list(part)), 1)


def _gaps(transcript: Transcript, ranges: Sequence[tuple[int, int]]) -> list[Loss]:
    gaps: list[Loss] = []
    end = 0
    for begin, stop in ranges:
        if begin > end:
            cut_messages = f"message {end}" if begin == end + 1 else f"messages {end} to {begin - 1}"
            gaps.append(Loss("window", f"{cut_messages} of the transcript", transcript.seq_at((end,))))
        end = stop
    return gaps


def _origins(full: Transcript, positions: dict[int, int], messages: Sequence[WireMessage]) -> Origins | None:
    if full.origins is None:
        return None
    origins = Origins(full.origins.part_key)
    for index, position in positions.items():
        parts = list(full.origins.parts[index])
        if parts and messages[position] is not full[index]:
            original, left = full[index][origins.part_key], messages[position][origins.part_key]
            ids = {id(part) for part in left}
            parts = [seq for seq, part in zip(parts, original, strict=False) if id(part) in ids]
        origins.owns.append(full.origins.owns[index])
        origins.parts.append(parts)
    return origins


def _recorded(original: Recorded | None, positions: dict[int, int], length: int) -> Recorded | None:
    if original is None:
        return None
    recorded = original.without_positions()
    for path in original.conflicts:
        position = positions.get(path[0]) if isinstance(path[0], int) else None
        if position is not None:
            moved: Path = (position, *path[1:])
            recorded.conflicts.append(moved)
    indexes = list(positions)
    for begin, fingerprints in original.requests:
        number = bisect_left(indexes, begin)
        recorded.requests.append((positions[indexes[number]] if number < len(indexes) else length, fingerprints))
    return recorded
