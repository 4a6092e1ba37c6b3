"""Made from ``loop_memory.py`` by ``python -m tools.sync_twin``, without ``await``.

Any number of threads may use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar, get_args

from msgspec.structs import replace

from agent_memory_log.errors import CursorOutOfRange, EventConflict, InvalidArgument
from agent_memory_log.events.context_payloads import Checkpoint, InjectedContext, injected_context
from agent_memory_log.events.event import new_event
from agent_memory_log.events.fields import describe
from agent_memory_log.memory import MemoryContext, SyncMemoryCalls, SyncMemoryClient
from agent_memory_log.memory.extraction.rules import RuleExtractor
from agent_memory_log.memory.records.protocols import Clock, Extractor, utc_now
from agent_memory_log.memory.records.record import Status
from agent_memory_log.models.tokens import CountTokens, default_counter
from agent_memory_log.processor.checkpoints import RECENT_EVENTS, checkpoint_of, part_ids, read_checkpoint, source_ids
from agent_memory_log.processor.contexts import Line, beside, block_of, known_lines, lines_of, places_of
from agent_memory_log.processor.journal import Story, story_of
from agent_memory_log.processor.loops import (
    Extracted,
    GraphChanges,
    Loop,
    LoopCheckpoint,
    LoopContext,
    Progress,
    Restored,
)
from agent_memory_log.processor.progress import DueExtractor, SeenRuns, metered
from agent_memory_log.processor.restoring import erased_copies, restored, without
from agent_memory_log.processor.triples import MOST_DEPTH, about, changes_between
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import require_sync_store, run_sync, work
from agent_memory_log.store import SyncStore

CONTEXT_WINDOW = 200_000
"""The default size of a model's context, in tokens."""

_STATUSES: tuple[Status, ...] = get_args(Status)
_T = TypeVar("_T")

_LONGEST_QUERY = 2_000
"""The most characters of a task that memory is searched for."""


class SyncLoopMemory:
    """The knowledge of agent loops: from their runs, and from the memory of their principals.

        loops = SyncLoopMemory(store, SyncMemoryClient(store))
        loop = Loop("coder", "task-7", Principal(tenant="acme", scopes={"user": "42"}))
        context = await loops.hydrate_pre_task(loop, "Make the tests pass.")

    Contexts are logged in the run as ``InjectedContext``, and checkpoints as ``Checkpoint``. An ``event_id`` makes a
    call safe to repeat: if the run has an event with this id, the call returns what it logged the first time.

    Every call raises the errors of the store, and ``InvalidArgument`` with the name of an invalid argument. Any number
    of tasks may use one ``SyncLoopMemory``.
    """

    def __init__(
        self,
        store: SyncStore,
        memory: SyncMemoryClient,
        *,
        context_window: int = CONTEXT_WINDOW,
        count_tokens: CountTokens | None = None,
        clock: Clock = utc_now,
    ) -> None:
        """Use an open store. The caller closes it.

        Args:
            store: The store that holds the runs.
            memory: The client of the same store. ``extract`` uses its extractor. If it has none, ``extract`` uses a
                ``RuleExtractor``, which needs no model.
            context_window: The size of the model's context, in tokens.
            count_tokens: Counts the tokens of a text. Default: ``tiktoken``, or an upper estimate without it.
            clock: Returns the current time, timezone-aware.
        """
        require_sync_store(store)
        if not isinstance(memory, SyncMemoryClient):
            raise InvalidArgument(f"memory must be a SyncMemoryClient, got {describe(memory)}")
        self._store = store
        self._client = memory
        self._extractor: Extractor = memory.extractor or RuleExtractor()
        self._context_window = _positive("context_window", context_window)
        self._count_tokens = count_tokens
        self._clock = clock
        self._seen = SeenRuns()

    def progress(self, loop: Loop) -> Progress:
        """Return the iteration and the utilization of the context, as the run of a loop shows them."""
        run = self._run(loop)
        return self._work(partial(self._progress_of, run))

    def hydrate_pre_task(
        self,
        loop: Loop,
        task: str,
        *,
        max_tokens: int = 2_000,
        decisions: bool = True,
        files: bool = True,
        event_id: str | None = None,
    ) -> LoopContext:
        """Return and log background for a task: memory about it, and the run's decisions, changes and open calls.

        Args:
            loop: The loop. Its run may be new.
            task: The description of the task. Memory is searched for it. ``""``: the run's latest user message.
            max_tokens: The most tokens of the text.
            decisions: Whether to include decisions.
            files: Whether to include changed and read files.
            event_id: The id of the event that logs the context. Default: a new id.
        """
        logged = self._logged(loop, event_id, max_tokens)
        if logged is not None:
            return logged
        story = self._story(loop, from_checkpoint=True)
        groups = lines_of(story, loop.agent, loop.run, decisions=decisions, files=files)
        return self._hydrate(loop, task or _request_of(story), groups, max_tokens, "pre_task", event_id)

    def hydrate_post_compaction(
        self, loop: Loop, *, max_tokens: int = 1_500, from_checkpoint: bool = True, event_id: str | None = None
    ) -> LoopContext:
        """Return and log background for a model whose context was compacted.

        Args:
            loop: The loop.
            max_tokens: The most tokens of the text.
            from_checkpoint: Whether to begin with the latest checkpoint of the run, so that only its events and the
                newer ones are read. The text is the same.
            event_id: The id of the event that logs the context. Default: a new id.
        """
        logged = self._logged(loop, event_id, max_tokens)
        if logged is not None:
            return logged
        story = self._story(loop, from_checkpoint=from_checkpoint)
        groups = lines_of(story, loop.agent, loop.run)
        return self._hydrate(loop, _request_of(story), groups, max_tokens, "post_compaction", event_id)

    def hydrate_for_entities(
        self, loop: Loop, ids: Iterable[str], depth: int = 1, *, max_tokens: int = 2_000, event_id: str | None = None
    ) -> LoopContext:
        """Return and log the memories about entities.

        Args:
            loop: The loop.
            ids: The names of the entities, in any case.
            depth: How far to follow relations: 0 finds records that name one of ``ids``, 1 also records that name an
                entity of such a record. At most 5.
            max_tokens: The most tokens of the text.
            event_id: The id of the event that logs the context. Default: a new id.
        """
        if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= MOST_DEPTH:
            raise InvalidArgument(f"depth must be an integer from 0 to {MOST_DEPTH}, got {describe(depth)}")
        names = tuple(ids)
        if isinstance(ids, str) or not all(isinstance(name, str) for name in names):
            raise InvalidArgument(f"ids must be a list of names, got {describe(ids)}")
        logged = self._logged(loop, event_id, max_tokens)
        if logged is not None:
            return logged
        memory = self._memory(loop)
        records = about(memory.list(), names, depth)
        groups = [known_lines([(record.id, record.text or record.data.describe()) for record in records])]
        return self._hydrate(loop, None, groups, max_tokens, "entities", event_id)

    def extract(self, loop: Loop, *, every: int | None = None, at: float | None = None) -> Extracted:
        """Derive memories from the events that no earlier call has read.

        Without ``every`` and ``at`` it is always due: call it before a compaction, and when a loop ends. With one or
        both of them, it is due as soon as one of them is reached. The position in the run is stored with the memories,
        so any process may call it, as often as it likes.

        Args:
            loop: The loop.
            every: Due after this many iterations that were not read yet. An iteration that the extractor left for
                later, because its turn goes on, counts once in each ``SyncLoopMemory``.
            at: Due when the utilization of the context grows to this, from 0 to 1, in events that were not read yet.
        """
        memory = self._memory(loop)
        if every is None and at is None:
            return Extracted(memory.derive(loop.agent, loop.run, extractor=self._extractor))
        if every is not None:
            _positive("every", every)
        if at is not None and (isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 < at <= 1):
            raise InvalidArgument(f"at must be a number above 0 and up to 1, got {describe(at)}")
        fills = None if at is None else at * self._context_window
        run = self._run(loop)
        extractor = DueExtractor(self._extractor, every, fills, run.log, self._seen.version(loop))
        report = memory.derive(loop.agent, loop.run, extractor=extractor)
        if extractor.is_due and report.status == "ok":
            self._seen.note(loop, run.version)
        return Extracted(report, extractor.is_due)

    def checkpoint(
        self, loop: Loop, *, reason: str = "", retention_days: float = 7, event_id: str | None = None
    ) -> LoopCheckpoint:
        """Log a checkpoint of a run, and return it.

        It names events by their ids and copies no text, so text that is redacted later is not in it.

        Args:
            loop: The loop.
            reason: The reason for it, such as ``compaction_starting``, in at most 64 characters.
            retention_days: The days for which it can be restored.
            event_id: The id of the checkpoint. Default: a new id.
        """
        earlier = None if event_id is None else self._checkpoint_with(loop, event_id)
        if earlier is not None:
            return earlier
        run = self._run(loop)
        progress = self._work(partial(self._progress_of, run))
        story = self._work(partial(story_of, run.log))
        checkpoint, events = checkpoint_of(
            loop, progress, story.events(), reason, retention_days, self._clock(), event_id
        )
        try:
            self._store.append_events(loop.agent, loop.run, *events)
        except EventConflict:  # another process took a checkpoint with this id first
            first = self._checkpoint_with(loop, checkpoint.checkpoint_id)
            if first is None:
                raise
            return first
        return checkpoint

    def latest_checkpoint(self, loop: Loop) -> LoopCheckpoint | None:
        """Return the newest checkpoint of a run that has not expired, or None."""
        types = (Checkpoint.event_type,)
        for last in (RECENT_EVENTS, None):
            run = self._store.load_run(loop.agent, loop.run, types=types, last=last)
            for event in reversed(run.log):
                checkpoint = read_checkpoint(loop, event)
                if checkpoint is not None and checkpoint.expires > self._clock():
                    return checkpoint
            if len(run.log) < RECENT_EVENTS:
                return None
        return None

    def restore(
        self, checkpoint: LoopCheckpoint, max_recovery_tokens: int = 1_500, *, provider: str | None = None
    ) -> Restored:
        """Return a conversation to continue with after a compaction, a crash or a restart. Nothing is logged.

        The newest turns stay whole, with their calls and results. A summary has the decisions, the changes and the open
        calls of the run. Instructions at the beginning stay and are not counted. Injected contexts are left out,
        unless the whole conversation fits.

        If not even the last answer fits, results of tools are shortened. If that is not enough, the conversation is the
        summary alone.

        Args:
            checkpoint: The checkpoint. Events that the run got since are part of the conversation.
            max_recovery_tokens: The most tokens of the messages, from 200.
            provider: The provider of the transcript. Default: that of the latest recorded request or answer.

        Raises:
            CursorOutOfRange: The run has no such checkpoint, the checkpoint has expired, or the run was deleted since.
        """
        loop = checkpoint.loop
        stored = self._checkpoint_with(loop, checkpoint.checkpoint_id)
        if stored is None:
            raise CursorOutOfRange(
                f"the run {loop.agent}/{loop.run} has no checkpoint {describe(checkpoint.checkpoint_id)}: it was "
                "deleted or redacted, or belongs to another run"
            )
        if stored.expires <= self._clock():
            raise CursorOutOfRange(
                f"the checkpoint {describe(stored.checkpoint_id)} expired at {stored.expires.isoformat()}"
            )
        run = self._run(loop)
        forgotten = self._forgotten(loop, run)
        hidden = run_sync(erased_copies(run, forgotten), self._store)
        return self._work(lambda: restored(without(run, hidden), provider, max_recovery_tokens, self._counter()))

    def graph_changes(self, loop: Loop, in_graph: Mapping[str, datetime] | None = None) -> GraphChanges:
        """Return the triples that a graph must add and delete to hold the principal's memory.

        Args:
            loop: The loop. Only its principal matters.
            in_graph: ``records`` of the latest changes that the graph has. Default: the graph is empty.
        """
        memory = self._memory(loop)
        return changes_between(in_graph or {}, memory.list(), loop.principal, self._clock())

    def _memory(self, loop: Loop) -> SyncMemoryCalls:
        return self._client.of(loop.principal)

    def _counter(self) -> CountTokens:
        return self._count_tokens or default_counter().count

    def _progress_of(self, run: Snapshot) -> Progress:
        meter = metered(run.log)
        return Progress(run.version, meter.iteration, meter.tokens, meter.tokens / self._context_window)

    def _work(self, function: Callable[[], _T]) -> _T:
        return run_sync(work(function), self._store)

    def _run(self, loop: Loop) -> Snapshot:
        return self._store.load_run(loop.agent, loop.run)

    def _checkpoint_with(self, loop: Loop, checkpoint_id: str) -> LoopCheckpoint | None:
        (event,) = self._store.find_events(loop.agent, loop.run, [checkpoint_id])
        return read_checkpoint(loop, event)

    def _story(self, loop: Loop, *, from_checkpoint: bool) -> Story:
        """Return the story of a run, from its latest checkpoint on if it has a usable one."""
        checkpoint = self.latest_checkpoint(loop) if from_checkpoint else None
        if checkpoint is not None:
            parts = self._store.find_events(loop.agent, loop.run, part_ids(checkpoint))
            ids = source_ids(parts)
            if ids is not None:
                sources = self._store.find_events(loop.agent, loop.run, ids)
                newer = self._store.load_run(loop.agent, loop.run, after=checkpoint.version)
                older = sorted((event for event in sources if event is not None), key=lambda event: event.seq)
                return self._work(partial(story_of, [*older, *newer.log]))
        run = self._run(loop)
        return self._work(partial(story_of, run.log))

    def _forgotten(self, loop: Loop, run: Snapshot) -> Callable[[str], bool]:
        """Return a function that tells whether the memory record with an id is forgotten."""
        if not any(isinstance(event.data, InjectedContext) and event.data.records for event in run.log):
            return _never
        memory = self._memory(loop)
        remaining = {record.id for status in _STATUSES for record in memory.list(status=status)}
        return lambda record: record not in remaining

    def _logged(self, loop: Loop, event_id: str | None, max_tokens: int) -> LoopContext | None:
        """Return the context that an earlier call with the same ``event_id`` logged, or None. Check ``max_tokens``."""
        _positive("max_tokens", max_tokens)
        if event_id is None:
            return None
        (event,) = self._store.find_events(loop.agent, loop.run, [event_id])
        if event is None or not isinstance(event.data, InjectedContext):
            return None
        data = event.data
        return LoopContext(data.text, data.token_count, data.records, data.messages, data.source, event=event)

    def _hydrate(
        self,
        loop: Loop,
        query: str | None,
        groups: Sequence[Sequence[Line]],
        max_tokens: int,
        source: str,
        event_id: str | None,
    ) -> LoopContext:
        """Return and log a block of the lines of ``groups``, after memory about ``query``. None: no other memory."""
        memory = self._memory(loop)
        count = self._work(self._counter)
        # An erasure of the events that the context quotes then reaches the context.
        memory.link_run(loop.agent, loop.run)
        background = MemoryContext()
        if query is not None:
            reserved = self._work(lambda: block_of(groups, max_tokens // 2, count).tokens)
            background = memory.context(query[:_LONGEST_QUERY], max_tokens=max_tokens - reserved)
        text, tokens, block = self._work(lambda: beside(background.text, groups, max_tokens, count))
        records, messages = (*background.records, *block.records), (*places_of(background.messages), *block.places)
        context = LoopContext(text, tokens, records, messages, source, background.note, block.left_out)
        return self._log(loop, context, event_id) if text else context

    def _log(self, loop: Loop, context: LoopContext, event_id: str | None) -> LoopContext:
        """Append a context to the run."""
        event = new_event(injected_context(context, context.source), event_id=event_id)
        try:
            appended = self._store.append_events(loop.agent, loop.run, event)
        except EventConflict:  # another process logged a context with this id first
            logged = self._logged(loop, event_id, 1)
            if logged is None:
                raise
            return logged
        return replace(context, event=appended.events[0])


def _request_of(story: Story) -> str:
    return "" if story.request is None else story.request.text


def _never(_: str) -> bool:
    return False


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} must be an integer from 1, got {describe(value)}")
    return value
