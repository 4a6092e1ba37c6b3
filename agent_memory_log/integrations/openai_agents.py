"""A session of the OpenAI Agents SDK that is a run of a store.

Each item of the session is one typed event, so memory, search, transcripts and replay read the run as any other. The
log only grows: ``pop_item`` appends an ``ItemsRemoved``, and a compaction appends a ``Compaction``. ``clear_session``
deletes the run.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, NamedTuple, cast

from agent_memory_log.errors import InvalidArgument, VersionConflict
from agent_memory_log.events.context_payloads import Compaction
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import NotJson, own_json
from agent_memory_log.events.payloads import EventData, ToolResult, UnknownPayload
from agent_memory_log.events.registry import register_payload
from agent_memory_log.integrations.memory_search import memory_search
from agent_memory_log.integrations.messages import MESSAGE_TYPES, json_text, name_results, parse_alone
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.integrations.opening import StoreOwner, needs_extra
from agent_memory_log.integrations.threads import in_thread
from agent_memory_log.memory.sync import SyncMemoryCalls
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import SyncStore
from agent_memory_log.transcript import build

with needs_extra("openai-agents"):
    from agents import FunctionTool, SessionSettings, TResponseInputItem, function_tool
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

_PROVIDER = "openai-responses"
_TEXT_TYPE = "openai-agents.item"
"""The type of an item that no store accepts as JSON. Its data is ``{"json": TEXT}``."""


@register_payload
class ItemsRemoved(EventData, frozen=True):
    """Removes the newest items of a session. Their events stay in the log.

    Attributes:
        seq: The event of the first removed item. All items after it are removed too. 0 removes all items.
        index: The position of this item among the items of its event, which is above 0 only in a ``Compaction``.
    """

    event_type = "openai-agents.items_removed"

    seq: int
    index: int = 0


_ITEM_TYPES = (
    *MESSAGE_TYPES,
    f"{_PROVIDER}.message",
    _TEXT_TYPE,
)
_TYPES = (*_ITEM_TYPES, Compaction.event_type, ItemsRemoved.event_type)


class _Item(NamedTuple):
    """An item of a session.

    Attributes:
        place: The seq of its event, and its position among the items of the event.
        content: Its event, or the item itself if it is part of a compaction.
    """

    place: tuple[int, int]
    content: Event | TResponseInputItem


class _History(NamedTuple):
    """The newest items of a session, the version of the run, and whether these are all items."""

    items: list[_Item]
    version: int
    is_complete: bool


class _CompactionSnapshot(NamedTuple):
    """The newest items of a session, as the SDK's compaction reads them.

    Attributes:
        items: The items.
        complete: Whether these are all items.
        replace_suffix: Replaces the items from a position on. It returns False if the session has changed since.
    """

    items: list[TResponseInputItem]
    complete: bool
    replace_suffix: Callable[[int, list[TResponseInputItem]], Awaitable[bool]]


class MemoryLogSession(StoreOwner):
    """A session that stores its items in a run. It follows the ``Session`` protocol of the SDK.

        session = MemoryLogSession("chat-1", "sqlite:///runs.db")
        result = await Runner.run(agent, "Hi", session=session)

    Any number of sessions, threads, event loops and processes may use the same run.

    Args:
        session_id: The id of the session, which is the id of the run. In an id of a run, ``/`` becomes ``%2F`` and
            ``%`` becomes ``%25``. An id that is too long ends in its hash.
        store: The URL of a store, or an open store. A store that is opened from a URL is closed by ``close``.
        agent: The id of the agent of the run.
        session_settings: The SDK's settings. ``limit`` is the number of items that ``get_items`` returns by default.

    Raises:
        InvalidArgument: ``session_id`` is not text or is empty, or ``store`` is neither a URL nor an open store.
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: str | SyncStore,
        *,
        agent: str = "openai-agents",
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(session_id, str) or not session_id:
            raise InvalidArgument("session_id must be text that is not empty")
        settings = SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        super().__init__(store)
        self.session_id = session_id
        self.session_settings = settings
        self.agent = agent
        self.run = joined_id(session_id)
        # Short ids that increase keep the store's index small. The prefix has 48 random bits. A process that was forked
        # cannot repeat an id, because its store refuses every call.
        self._prefix = secrets.token_urlsafe(6)
        self._numbers = count()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, the oldest first.

        Args:
            limit: Return only this many of the newest items, at the cost of these items. The default is the limit of
                ``session_settings``. A negative number returns all items.
        """
        most = resolve_session_limit(limit, self.session_settings)
        if most == 0:
            return []
        return await in_thread(lambda: self._items_of(self._read(None if most is None or most < 0 else most).items))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items. All of them are stored or none.

        Raises:
            InvalidArgument: An item cannot be written as JSON.
        """
        await in_thread(lambda: self.store.append_events(self.agent, self.run, *self._events_of(items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it, or None if there is no item. No two calls return the same item."""
        return await in_thread(self._pop)

    async def clear_session(self) -> None:
        """Delete the run. Memories that rest on it fall."""
        await in_thread(lambda: self.store.delete_run(self.agent, self.run))

    def _pop(self) -> TResponseInputItem | None:
        while True:
            history = self._read(1)
            if not history.items:
                return None
            newest = history.items[-1]
            if self._append([new_event(ItemsRemoved(*newest.place))], history.version):
                return self._items_of([newest])[0]

    def _append(self, events: Sequence[Event], version: int) -> bool:
        """Append events, and return whether the run was still at ``version``."""
        try:
            self.store.append_events(self.agent, self.run, *events, expected_version=version)
        except VersionConflict:
            return False
        return True

    # The SDK's OpenAIResponsesCompactionSession looks for the next two methods, and works without them. With them, a
    # compaction is one append. A subclass may change items on their way in and out, so it works without them.

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        if type(self) is not MemoryLogSession:
            return False
        await in_thread(lambda: self.store.append_events(self.agent, self.run, *self._compacted(items)))
        return True

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot | None:
        if type(self) is not MemoryLogSession:
            return None
        history = await in_thread(lambda: self._newest(limit))

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            return await in_thread(lambda: self._replace_suffix(history, start, output, prune_prefix))

        return _CompactionSnapshot(self._items_of(history.items), history.is_complete, replace_suffix)

    def _replace_suffix(
        self,
        history: _History,
        start: int,
        output: list[TResponseInputItem],
        prune_prefix: Callable[[TResponseInputItem], bool] | None,
    ) -> bool:
        """Replace the items of ``history`` from ``start`` on, unless the run has changed since."""
        if start >= len(history.items):
            return False
        first = history.items[start].place
        prefix: list[TResponseInputItem] | None = [] if history.is_complete and start == 0 else None
        if prefix is None and prune_prefix is not None:
            before = self._items_of([item for item in self._read(None).items if item.place < first])
            expired = next((index for index, item in enumerate(before) if not prune_prefix(item)), len(before))
            prefix = before[expired:] if expired else None
        if prefix is not None:
            return self._append(self._compacted([*prefix, *output]), history.version)
        return self._append([new_event(ItemsRemoved(*first)), *self._events_of(output)], history.version)

    def _compacted(self, items: Sequence[TResponseInputItem]) -> list[Event]:
        """Return the events that replace all items: one ``Compaction``, unless no store accepts an item as JSON."""
        try:
            own_items = own_json(cast("object", list(items)))
        except NotJson:
            return [new_event(ItemsRemoved(0)), *self._events_of(items)]
        return [new_event(Compaction(structured={_PROVIDER: {"items": own_items}}))]

    def _events_of(self, items: Sequence[TResponseInputItem]) -> list[Event]:
        """Return one event for each item."""
        events: list[Event] = []
        for item in items:
            parsed = parse_alone(item, _PROVIDER)
            if parsed is None:
                data = {"json": json_text(item, "an item of a session")}
                events.append(new_event(UnknownPayload(type=_TEXT_TYPE, data=data)))
            else:
                # The label with the role would only repeat the type.
                events += (
                    new_event(event.data, timestamp=event.timestamp, event_id=f"{self._prefix}{next(self._numbers):x}")
                    for event in parsed
                )
        return name_results(self.store, self.agent, self.run, events)

    def _newest(self, most: int) -> _History:
        """Read the newest ``most`` items. One more item shows whether these are all."""
        items, version, _ = self._read(most + 1)
        left_out = max(len(items) - most, 0)
        return _History(items[left_out:], version, not left_out)

    def _read(self, most: int | None) -> _History:
        """Read the newest ``most`` items; None reads all."""
        last = most
        while True:
            snapshot = self.store.load_run(self.agent, self.run, types=_TYPES, last=last)
            items, is_complete = _fold(snapshot)
            if last is None or most is None or is_complete or len(items) >= most:
                left_out = 0 if most is None else max(len(items) - most, 0)
                return _History(items[left_out:], snapshot.version, is_complete and not left_out)
            last *= 2  # a removal hides the newest items that were read

    def _items_of(self, items: Sequence[_Item]) -> list[TResponseInputItem]:
        events = [item.content for item in items if isinstance(item.content, Event)]
        # Results come first, so that none finds its call: each event is built as if it were alone.
        events.sort(key=lambda event: not isinstance(event.data, ToolResult))
        transcript = build(Snapshot(self.agent, self.run, events), _PROVIDER)
        built = {transcript.seq_at((index,)): item for index, item in enumerate(transcript)}
        result: list[TResponseInputItem] = []
        for item in items:
            content = item.content
            if not isinstance(content, Event):
                result.append(content)
            elif isinstance(content.data, UnknownPayload) and content.type == _TEXT_TYPE:
                result.append(json.loads(cast("str", content.data.data["json"])))
            elif content.seq in built:
                result.append(cast("TResponseInputItem", built[content.seq]))
        return result


def _fold(snapshot: Snapshot) -> tuple[list[_Item], bool]:
    """Return the items that a snapshot shows, and whether the session has no older ones."""
    items: list[_Item] = []
    is_complete = snapshot.after < snapshot.first_seq
    for event in snapshot.log:
        data = event.data
        if isinstance(data, ItemsRemoved):
            while items and items[-1].place >= (data.seq, data.index):
                items.pop()
        elif isinstance(data, Compaction):
            compacted = build(Snapshot(snapshot.agent, snapshot.run, [event]), _PROVIDER)
            items = [_Item((event.seq, index), cast("Any", item)) for index, item in enumerate(compacted)]
            is_complete = True
        else:
            items.append(_Item((event.seq, 0), event))
    return items, is_complete


def memory_tool(memory: SyncMemoryCalls) -> FunctionTool:
    """Return a tool with which an agent looks into a memory. The memory's principal decides which memories it reads.

    agent = Agent(name="assistant", tools=[memory_tool(SyncMemoryClient(store).of(principal))])
    """
    return function_tool(memory_search(memory))
