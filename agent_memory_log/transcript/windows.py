"""Long histories: the part of a transcript that fits, cut only where what is left stays valid.

A cut takes whole turns from the beginning. Where the newest turn alone is too long, its opening stays and whole rounds
(what the assistant says, and the results it gets) go, oldest first.
"""

from __future__ import annotations

from bisect import bisect_left
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
    """Where a transcript may be cut; all are indexes of messages, ascending.

    - ``head``: how many messages at the beginning always stay, as system messages.
    - ``turns``: where a turn begins: what follows is valid alone.
    - ``openings``: for each turn the end of what the user said: that, and what begins at a round, is valid.
    - ``rounds``: where a round begins.
    """

    head: int
    turns: list[int]
    openings: list[int]
    rounds: list[int]


class Side(NamedTuple):
    """Whose a message is: ``speaker`` is ``"system"``, ``"user"``, ``"model"`` or ``"tool"``.

    ``opened`` and ``closed`` are what the message opens or closes that no cut may separate, as a call and its result.
    """

    speaker: str
    opened: tuple[str, str] | None = None
    closed: tuple[str, str] | None = None


_SPEAKERS = {"system": "system", "developer": "system", "user": "user", "assistant": "model"}


def side_of_role(role: object) -> Side:
    """Whose a message of a role is."""
    return Side(_SPEAKERS.get(role, "tool") if isinstance(role, str) else "tool")


def find_seams(
    messages: Sequence[WireMessage], side_of: Callable[[WireMessage], Side], *, joins_model: bool = False
) -> Seams:
    """Where a transcript may be cut: nowhere inside what ``Side`` keeps together.

    Instructions at the beginning stay. A turn begins where the user speaks, a round with what the model says;
    ``joins_model``: messages of the model that follow each other are one round.
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
    """What all messages from each on take of a limit, and the limit."""

    left: list[int]
    limit: int


def cut_transcript(
    whole: Transcript,
    seams: Seams,
    without_reasoning: Callable[[WireMessage], WireMessage | None],
    max_events: int | None,
    max_tokens: int | None,
    since_turn: int | None,
    count_tokens: Callable[[WireMessage], int] | None,
    sending: Sending,
    sendable: Callable[[Sequence[object], Mapping[str, JsonValue]], dict[str, JsonValue]],
) -> Window:
    """The newest part of ``whole`` that is within the limits; see ``agent_memory_log.transcript.window``."""
    measures: list[_Measure] = []
    if max_events is not None:
        measures.append(_measure([_events_of(whole, index) for index in range(len(whole))], max_events))
    if max_tokens is not None:
        count = count_tokens or estimate_tokens
        measures.append(_measure([count(message) for message in whole], max_tokens))
    ranges, fits = _ranges(len(whole), seams, measures, _first_turn(seams, since_turn))
    kept = [index for begin, end in ranges for index in range(begin, end)]
    left_out = list(_gaps(whole, ranges))
    messages: list[WireMessage] = []
    positions: dict[int, int] = {}
    first_gap = next((index for index, position in enumerate(kept) if index != position), len(kept))
    for number, index in enumerate(kept):
        message = whole[index]
        left = without_reasoning(message) if number >= first_gap else message
        if left is not message:
            seq = whole.seq_at((index,))
            left_out.append(Loss("reasoning", f"reasoning in message {index}, bound to what was cut", seq))
        if left is not None:
            positions[index] = len(messages)
            messages.append(left)
    request = sendable(messages, sending.request) if left_out else sending.request
    cut = Transcript(
        messages,
        provider=whole.provider,
        origins=_origins(whole, positions, messages),
        recorded=_recorded(whole.recorded, positions, len(messages)),
        snapshot=whole.snapshot,
        losses=(*whole.losses, *left_out),
        sending=Sending(request, sending.fingerprints),
    )
    return Window(cut, tuple(left_out), fits, dict(request))


def estimate_tokens(message: WireMessage) -> int:
    """About how many tokens a message has: a quarter of its bytes as JSON. A tokenizer knows better."""
    return -(-len(encode_json(message)) // _BYTES_A_TOKEN)


def _ranges(
    length: int, seams: Seams, measures: Sequence[_Measure], first_turn: int
) -> tuple[list[tuple[int, int]], bool]:
    """The ranges of messages that stay, and whether they are within the limits."""

    def fits(*ranges: tuple[int, int]) -> bool:
        sizes = (sum(measure.left[begin] - measure.left[end] for begin, end in ranges) for measure in measures)
        return all(size <= measure.limit for size, measure in zip(sizes, measures, strict=True))

    head = (0, seams.head)
    if not seams.turns:
        return [(0, length)], fits((0, length))
    for number in range(first_turn, len(seams.turns)):
        # What stands before the first turn belongs to it.
        tail = (seams.turns[number] if number else seams.head, length)
        if fits(head, tail):
            return [head, tail], True
    newest = (seams.turns[-1], seams.openings[-1])
    tails = [(begin, length) for begin in seams.rounds if begin > newest[1]] or [(newest[1], length)]
    for tail in tails:
        if fits(head, newest, tail):
            return [head, newest, tail], True
    return [head, newest, tails[-1]], False


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


def _events_of(whole: Transcript, index: int) -> int:
    known = 0 if whole.origins is None else len(whole.origins.events_of(index))
    if known:
        return known
    parts = [whole[index].get(key) for key in ("content", "tool_calls")]
    return max(sum(len(part) for part in parts if is_list(part)), 1)


def _gaps(whole: Transcript, ranges: Sequence[tuple[int, int]]) -> list[Loss]:
    gaps: list[Loss] = []
    end = 0
    for begin, stop in ranges:
        if begin > end:
            named = f"message {end}" if begin == end + 1 else f"messages {end} to {begin - 1}"
            gaps.append(Loss("window", f"{named} of the transcript", whole.seq_at((end,))))
        end = stop
    return gaps


def _origins(whole: Transcript, positions: dict[int, int], messages: Sequence[WireMessage]) -> Origins | None:
    if whole.origins is None:
        return None
    origins = Origins(whole.origins.part_key)
    for index, position in positions.items():
        parts = list(whole.origins.parts[index])
        if parts and messages[position] is not whole[index]:
            given, left = whole[index][origins.part_key], messages[position][origins.part_key]
            ids = {id(part) for part in left}
            parts = [seq for seq, part in zip(parts, given, strict=False) if id(part) in ids]
        origins.owns.append(whole.origins.owns[index])
        origins.parts.append(parts)
    return origins


def _recorded(known: Recorded | None, positions: dict[int, int], length: int) -> Recorded | None:
    if known is None:
        return None
    recorded = known.without_positions()
    for path in known.conflicts:
        position = positions.get(path[0]) if isinstance(path[0], int) else None
        if position is not None:
            moved: Path = (position, *path[1:])
            recorded.conflicts.append(moved)
    kept = list(positions)
    for begin, fingerprints in known.requests:
        number = bisect_left(kept, begin)
        recorded.requests.append((positions[kept[number]] if number < len(kept) else length, fingerprints))
    return recorded
