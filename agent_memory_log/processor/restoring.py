"""Makes a conversation to continue with from a run: the newest turns, after a summary of the events that are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.context_payloads import Compaction, InjectedContext
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.payloads import ModelRequest, Redaction
from agent_memory_log.memory.records.messages import names_any
from agent_memory_log.memory.stream.evidence import ErasedPlaces
from agent_memory_log.models.tokens import CountTokens
from agent_memory_log.processor.contexts import LONGEST_TEXT, block_of, lines_of
from agent_memory_log.processor.journal import covers_any, story_of
from agent_memory_log.processor.loops import Restored
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, erasures
from agent_memory_log.transcript import Repair, WireMessage, build, repair, window
from agent_memory_log.transcript.names import PROVIDERS
from agent_memory_log.transcript.transcripts import Transcript

LEAST_TOKENS = 200
"""The smallest budget of a restored conversation. A summary without lines has about 60 tokens."""

_SUMMARY_PARTS = (2, 3, 5, 10)
"""The parts of the budget that a summary may take, one after the other, until the newest turn fits beside it."""

_SHORT_TEXT = 120
_NOTHING = "Earlier events of this run are left out, because they do not fit."
"""The summary if no line of a longer one fits."""

_LEAST_MESSAGE = 5
"""The fewest tokens of a message. So the tokens of a long run need not be counted."""

_RESULT_BYTES = (None, 16_384, 4_096, 1_024, 256)
"""The sizes that results are cut to, one after the other, until the newest turn fits. None: the size of ``build``."""


def restored(run: Snapshot, provider: str | None, max_tokens: int, count: CountTokens) -> Restored:
    """Return the conversation of a run within ``max_tokens``; see ``LoopMemory.restore``.

    Raises ``InvalidArgument`` if the run does not name a provider, or ``max_tokens`` is too small.
    """
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < LEAST_TOKENS:
        raise InvalidArgument(f"max_recovery_tokens must be an integer from {LEAST_TOKENS}, got {describe(max_tokens)}")
    name = provider or _provider_of(run)
    if name is None:
        raise InvalidArgument("the run does not name the provider of its model: pass provider")
    restoring = _Restoring(run, name, max_tokens, count)
    conversation, summary, is_complete = restoring.cut()
    return Restored(
        conversation.transcript,
        conversation.request,
        summary,
        restoring.size(conversation.transcript),
        tuple(entry.events[-1] for entry in restoring.story.open_calls),
        tuple(dict.fromkeys(entry.text for entry in restoring.story.decisions)),
        run.version,
        is_complete,
    )


def erased_copies(run: Snapshot, is_forgotten: Callable[[str], bool]) -> Steps[frozenset[int]]:
    """Return the seqs of the events that may repeat erased words, and that memory has not redacted yet.

    They are injected contexts that name an erased event or a forgotten record, and compactions of events that were
    redacted after them.
    """
    copies: set[int] = set()
    contexts: list[Event] = []
    compactions: list[Event] = []
    for event in run.log:
        data = event.data
        if isinstance(data, InjectedContext):
            contexts.append(event)
        elif isinstance(data, Compaction):
            compactions.append(event)
        elif isinstance(data, Redaction):
            copies.update(compaction.seq for compaction in compactions if covers_any(compaction, data.seqs))
    runs = {(place.agent, place.run) for event in contexts for place in _quoted(event).messages}
    places = ErasedPlaces((yield from erasures(tuple(sorted(runs)))).entries) if runs else ErasedPlaces(())
    for event in contexts:
        records = frozenset(filter(is_forgotten, _quoted(event).records))
        if names_any(event, records, lambda place: places.has(place[:2], place[2])):
            copies.add(event.seq)
    return frozenset(copies)


def without(run: Snapshot, seqs: frozenset[int]) -> Snapshot:
    """Return a run without some of its events."""
    if not seqs:
        return run
    return Snapshot(
        run.agent,
        run.run,
        [event for event in run.log if event.seq not in seqs],
        version=run.version,
        meta=run.meta,
        first_seq=run.first_seq,
        redactions=run.redactions,
    )


class _Restoring:
    """The cuts of one run."""

    def __init__(self, run: Snapshot, provider: str, max_tokens: int, count: CountTokens) -> None:
        self.story = story_of(run.log)
        self._run = run
        self._provider = provider
        self._max_tokens = max_tokens
        self._count = count

    def cut(self) -> tuple[Repair, str, bool]:
        """Return the longest conversation that fits, its summary, and whether it is complete."""
        built = build(self._run, self._provider)
        if len(built) * _LEAST_MESSAGE <= self._max_tokens:
            complete = repair(built, self._provider)
            if self._fits(complete.transcript):
                return complete, "", True
        contexts = frozenset(event.seq for event in self._run.log if isinstance(event.data, InjectedContext))
        run = without(self._run, contexts)
        recent = self._recent(run, None)
        for max_result_bytes in _RESULT_BYTES:
            recent = recent if max_result_bytes is None else self._recent(run, max_result_bytes)
            sizes = {id(message): self.size([message]) for message in recent.transcript}
            for part in _SUMMARY_PARTS:
                summary = self._summary(self._max_tokens // part)
                conversation = self._with_newest_turns(recent.transcript, sizes, summary)
                if conversation is not None:
                    return conversation, summary, False
        return self._only_summary(recent)

    def _recent(self, run: Snapshot, max_result_bytes: int | None) -> Repair:
        """Return the newest turns, more of them than can fit."""
        built = build(run, self._provider, max_result_bytes=max_result_bytes)
        recent = window(built, self._provider, since_turn=-max(1, self._max_tokens // _LEAST_MESSAGE))
        return repair(recent.transcript, self._provider, request=recent.request)

    def size(self, messages: Iterable[WireMessage]) -> int:
        """Return the tokens of messages, without the instructions at the beginning."""
        return sum(self._count(encode_json(message).decode()) for message in messages if not _instructs(message))

    def _fits(self, messages: Iterable[WireMessage]) -> bool:
        """Return whether messages are within the budget. It stops to count as soon as they are not."""
        left = self._max_tokens
        for message in messages:
            left -= self.size([message])
            if left < 0:
                return False
        return True

    def _with_newest_turns(self, recent: Transcript, sizes: Mapping[int, int], summary: str) -> Repair | None:
        """Return a summary and the newest turns, or None if the last round of the newest turn does not fit.

        ``sizes`` has the tokens of each message of ``recent``, by the identity of the message.
        """
        summary_messages = self._messages_of(summary)
        cut = window(
            recent,
            self._provider,
            max_tokens=max(1, self._max_tokens - self.size(summary_messages)),
            count_tokens=lambda message: sizes[id(message)],
        )
        if not cut.fits:
            return None
        instructions = list(takewhile(_instructs, cut.transcript))
        messages = [*instructions, *summary_messages, *cut.transcript[len(instructions) :]]
        joined = repair(messages, self._provider, request=cut.request)
        return joined if self._fits(joined.transcript) else None

    def _only_summary(self, recent: Repair) -> tuple[Repair, str, bool]:
        """Return the instructions and one message. It always fits."""
        parts = ((longest, part) for longest in (LONGEST_TEXT, _SHORT_TEXT) for part in _SUMMARY_PARTS)
        summaries = (self._summary(self._max_tokens // part, longest) for longest, part in parts)
        fitting = (text for text in summaries if text != _NOTHING and self._fits(self._messages_of(text)))
        summary = next(fitting, _NOTHING)
        messages = [*takewhile(_instructs, recent.transcript), *self._messages_of(summary)]
        return repair(messages, self._provider, request=recent.request), summary, False

    def _summary(self, max_tokens: int, longest: int = LONGEST_TEXT) -> str:
        groups = lines_of(self.story, self._run.agent, self._run.run, longest=longest)
        return block_of(groups, max_tokens, self._count).text or _NOTHING

    def _messages_of(self, summary: str) -> Sequence[WireMessage]:
        """Return the message of the user that gives the model the summary."""
        event = new_event(InjectedContext(summary))
        return build(Snapshot(self._run.agent, self._run.run, [event]), self._provider)


def _instructs(message: WireMessage) -> bool:
    return message.get("role") in ("system", "developer")


def _quoted(event: Event) -> InjectedContext:
    return event.data if isinstance(event.data, InjectedContext) else InjectedContext()


def _provider_of(run: Snapshot) -> str | None:
    """Return the provider of the latest model request, or of the latest answer that names one."""
    for event in reversed(run.log):
        if isinstance(event.data, ModelRequest):
            return event.data.provider
        if event.labels.get("provider") in PROVIDERS:
            return event.labels["provider"]
    return None
