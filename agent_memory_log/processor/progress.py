"""Counts the iterations of a loop and the tokens of its context, from the events of its run."""

from __future__ import annotations

from collections.abc import Iterable

from agent_memory_log.events.context_payloads import Compaction, InjectedContext
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.events.payloads import (
    AssistantMessage,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_memory_log.interchange.usage import USAGE_LABEL, usage_of
from agent_memory_log.memory.records.principals import SubjectId
from agent_memory_log.memory.records.protocols import Extraction, Extractor, RunSlice
from agent_memory_log.processor.loops import Loop

_ANSWER = (AssistantMessage, Thinking, ToolCall)
_INPUT = (UserMessage, ToolResult, InjectedContext, Compaction, SystemMessage)
_MOST_LOOPS = 10_000
_BYTES_A_TOKEN = 4
"""The bytes of JSON that count as a token, as in ``transcript.window``."""


class Meter:
    """Counts event by event.

    Attributes:
        iteration: The number of answers so far.
        tokens: The tokens of the conversation.
    """

    def __init__(self) -> None:
        self.iteration = 0
        self.tokens = 0
        self._is_answering = False

    def add(self, event: Event) -> None:
        """Count the next event."""
        data = event.data
        is_nested = isinstance(data, (ToolCall, ToolResult)) and bool(data.parent_tool_call_id)
        if isinstance(data, _ANSWER) and not is_nested:
            self.iteration += not self._is_answering
            self._is_answering = True
        elif isinstance(data, _INPUT) and not is_nested:
            self._is_answering = False
        else:
            return
        usage = usage_of(event) if USAGE_LABEL in event.labels else None
        if usage is not None and usage.input_tokens is not None:
            self.tokens = usage.input_tokens + (usage.output_tokens or 0)
            return
        size = -(-len(encode_json(data)) // _BYTES_A_TOKEN)
        self.tokens = size if isinstance(data, Compaction) else self.tokens + size


def metered(events: Iterable[Event]) -> Meter:
    """Return a meter that has counted some events."""
    meter = Meter()
    for event in events:
        meter.add(event)
    return meter


class SeenRuns:
    """The version of each loop's run at its last extraction that was due, of the latest 10,000 loops.

    An extractor may leave the events of a turn that continues for later. They make no second extraction due.
    """

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str, SubjectId], int] = {}

    def version(self, loop: Loop) -> int:
        """Return the version of the run of a loop, or 0."""
        return self._versions.get(_memory_of(loop), 0)

    def note(self, loop: Loop, version: int) -> None:
        """Note a version. If there are too many loops, forget the one that was noted the longest time ago."""
        self._versions.pop(_memory_of(loop), None)
        self._versions[_memory_of(loop)] = version
        if len(self._versions) > _MOST_LOOPS:
            del self._versions[next(iter(self._versions))]


def _memory_of(loop: Loop) -> tuple[str, str, SubjectId]:
    """Return the run of a loop, and the owner of the memory that has its position in the run."""
    return loop.agent, loop.run, loop.principal.subject(loop.principal.home)


class DueExtractor:
    """An extractor that works only when an extraction is due, and otherwise leaves the events for the next call.

    Attributes:
        is_due: Whether the last call was due.
    """

    def __init__(
        self, extractor: Extractor, every: int | None, fills: float | None, log: Iterable[Event], seen: int
    ) -> None:
        """Wrap an extractor.

        Args:
            extractor: The extractor.
            every: Due after this many iterations. None: never for this reason.
            fills: Due when the conversation reaches this many tokens. None: never for this reason.
            log: The run.
            seen: The last seq of the events that the extractor has seen. It may have left some of them for later.
        """
        self._extractor = extractor
        self._every = every
        self._fills = fills
        self._log = log
        self._seen = seen
        self.is_due = False

    @property
    def name(self) -> str:
        """The name of the extractor."""
        return self._extractor.name

    def extract(self, new: RunSlice, /) -> Extraction:
        """Return what the extractor finds, or an empty result at the position of the last call."""
        seen = max(self._seen, new.after)
        unseen = [event for event in new.events if event.seq > seen]
        enough = self._every is not None and metered(unseen).iteration >= self._every
        self.is_due = enough or (self._fills is not None and self._has_filled(self._fills, seen, unseen))
        return self._extractor.extract(new) if self.is_due else Extraction(position=new.after)

    def _has_filled(self, tokens: float, seen: int, unseen: Iterable[Event]) -> bool:
        """Return whether the conversation grew from fewer tokens than this to as many in the unseen events."""
        meter = metered(event for event in self._log if event.seq <= seen)
        was_below = meter.tokens < tokens
        for event in unseen:
            meter.add(event)
            if was_below and meter.tokens >= tokens:
                return True
            was_below = meter.tokens < tokens
        return False
