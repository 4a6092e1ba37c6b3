"""The memory service: a search of the sessions of a user, and of the memories that were learned from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from google.adk.events.event import Event as AdkEvent
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types

from agent_memory_log.errors import EventConflict
from agent_memory_log.events.event import Event
from agent_memory_log.integrations.google_adk.encoding import OWN, adk_events, events_of, fields_of, time_of
from agent_memory_log.integrations.google_adk.state import SessionPlace
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.integrations.opening import AsyncStoreOwner
from agent_memory_log.integrations.threads import in_thread
from agent_memory_log.memory import Extractor, Principal, RunMessage, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.records.reports.outcomes import Hit
from agent_memory_log.recall import Embedder
from agent_memory_log.store import SyncStore

_ADDED = f"{OWN}-memory"
"""The first part of the ids of the agents whose runs hold events that were added to memory."""

_MOST_HITS = 10
"""The number of memories that ADK's own service returns at most."""

_MATCHES = {"words", "vectors", "shared_words"}
"""The parts of a score that come from the text itself, and not from the texts around it."""


class MemoryLogMemoryService(AsyncStoreOwner, BaseMemoryService):
    """A memory service that finds messages of added sessions, and memories that were learned from them.

        store = open_sync_store("sqlite:///runs.db")
        runner = Runner(
            app_name="shop",
            agent=agent,
            session_service=MemoryLogSessionService(store),
            memory_service=MemoryLogMemoryService(store, extractor=RuleExtractor()),
        )

    The memory belongs to ``Principal(tenant=APP, scopes={"user": USER})``. No user finds the memories of another.

    Args:
        store: The URL of a store, or an open store. A store that is opened from a URL is closed by ``close``. A session
            that ``MemoryLogSessionService`` has in this store is read there, and its deletion removes its memories.
        extractor: Learns from an added session. The default learns nothing: a search then finds only messages.
        embedder: Lets a search find texts that share no word with the query.

    Raises:
        InvalidArgument: ``store`` is neither a URL nor an open store.
    """

    def __init__(
        self, store: str | SyncStore, *, extractor: Extractor | None = None, embedder: Embedder | None = None
    ) -> None:
        super().__init__(store)
        self._client = SyncMemoryClient(self.store, extractor=extractor, embedder=embedder)
        self._learns = extractor is not None

    async def add_session_to_memory(self, session: Session) -> None:
        """Let searches find the messages of a session, also those that its run in the store gets later."""
        await in_thread(lambda: self._add_session(session))

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[AdkEvent],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Let searches find the messages of these events. An event with an id that was added before is left out."""
        del custom_metadata
        place = SessionPlace(app_name, user_id, session_id or "")
        await in_thread(lambda: self._add_events(place, events))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return at most ten memories and messages that match a query, the best first."""
        return SearchMemoryResponse(memories=await in_thread(lambda: self._search(app_name, user_id, query)))

    def _memory(self, app: str, user: str) -> SyncMemory:
        return self._client.of(Principal(tenant=app, scopes={"user": user}))

    def _add_session(self, session: Session) -> None:
        place = SessionPlace(session.app_name, session.user_id, session.id)
        head = self.store.peek_runs([place.run_id])[0]
        if head is not None and head.version >= head.first_seq:
            self._link(self._memory(place.app, place.user), place.run_id)
        else:
            self._add_events(place, session.events)

    def _add_events(self, place: SessionPlace, events: Sequence[AdkEvent]) -> None:
        memory = self._memory(place.app, place.user)  # it refuses ids that memory cannot have
        run_id = joined_id(_ADDED, place.app, place.user), joined_id("session", place.session)
        for event in events:
            if event.content and event.content.parts:
                self._add(run_id, events_of(fields_of(event), time_of(event.timestamp)))
        self._link(memory, run_id)

    def _add(self, run_id: tuple[str, str], events: list[Event]) -> None:
        if self.store.find_events(*run_id, [events[0].event_id])[0] is None:
            # An EventConflict means that another caller added another event with this id.
            with suppress(EventConflict):
                self.store.append_events(*run_id, *events)

    def _link(self, memory: SyncMemory, run_id: tuple[str, str]) -> None:
        if self._learns:
            memory.derive(*run_id)
        else:
            memory.link_run(*run_id)

    def _search(self, app: str, user: str, query: str) -> list[MemoryEntry]:
        hits = self._memory(app, user).search(query, top_k=2 * _MOST_HITS)
        matching = [hit for hit in hits if hit.matched_by.keys() & _MATCHES]
        return [self._entry_of(hit) for hit in matching[:_MOST_HITS]]

    def _entry_of(self, hit: Hit) -> MemoryEntry:
        message, record = hit.message, hit.record
        if message is not None:
            event = self._event_of(message)
            author = message.speaker if event is None else event.author
            content = None if event is None else event.content
            time, role = message.time, "user" if message.speaker == "user" else "model"
        else:
            assert record is not None  # noqa: S101  # a hit has one of the two
            author, content, time, role = record.source.kind, None, record.updated, "user"
        if content is None:
            content = types.Content(role=role, parts=[types.Part(text=hit.text)])
        return MemoryEntry(id=hit.id, content=content, author=author, timestamp=time.isoformat())

    def _event_of(self, message: RunMessage) -> AdkEvent | None:
        """Return the event of ADK that begins with a message, or None."""
        stored = self.store.find_events(message.agent, message.run, [message.event_id])[0]
        events = [] if stored is None else adk_events(message.agent, message.run, [stored])
        return events[0] if events else None
