"""The conversation store: each conversation is a run.

A save is one append. It has the new messages, and then a ``ConversationSaved`` with Pydantic AI's record of the
conversation. A fork copies the messages that it shares, so each conversation can be read and erased alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_core import PydanticSerializationError

from agent_memory_log.errors import InvalidArgument, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import EventData
from agent_memory_log.events.registry import register_payload
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.integrations.opening import StoreOwner, runs_of
from agent_memory_log.integrations.pydantic_ai.encoding import (
    CONVERSATION_TYPES,
    OWN,
    StoredMessage,
    events_of,
    messages_of,
    stored_messages,
)
from agent_memory_log.integrations.threads import in_thread
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import SyncStore
from agent_memory_log.transcript.json_types import map_in

_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)
_MOST_PLACES = 10_000
_EVENTS_A_MESSAGE = 4
"""The number of events that the first read of a window reads for each message."""


@register_payload
class ConversationSaved(EventData, frozen=True):
    """The end of a save. ``record`` is Pydantic AI's record of the conversation as JSON text."""

    event_type = f"{OWN}.conversation_saved"

    record: str


class MemoryLogConversationStore(StoreOwner, ConversationStore):
    """A conversation store that keeps each conversation as a run with typed events.

        store = MemoryLogConversationStore("sqlite:///runs.db")
        conversation = await store.load("chat-1") or Conversation(conversation_id="chat-1")
        result = await agent.run("Hi", conversation=conversation)
        await store.save(result)

    The run is the conversation's id. In an id of a run, ``/`` becomes ``%2F`` and ``%`` becomes ``%25``. An id that is
    too long ends in its hash. ``delete`` erases all messages of a conversation. Its forks keep their own copies. Any
    number of event loops, threads and processes may use the same store.

    Args:
        store: The URL of a store, or an open store. A store that is opened from a URL is closed by ``close``.
        agent: The id of the agent of the runs.

    Raises:
        InvalidArgument: ``store`` is neither a URL nor an open store.
    """

    def __init__(self, store: str | SyncStore, *, agent: str = OWN) -> None:
        super().__init__(store)
        self.agent = agent
        self._places: dict[str, str] = {}
        """The run in which a message was seen, by the message's key."""

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None if it is not stored."""
        return await in_thread(lambda: self._record_in(self._newest(joined_id(conversation_id))))

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return records, the most recently changed first. Only the runs of ``scope`` are read."""
        return await in_thread(lambda: self._records(scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new messages, all or nothing.

        Raises:
            ConversationConflict: The stored record is another one, or the record names a message that is not stored.
            InvalidArgument: A message or the record cannot be written as JSON.
        """
        await in_thread(lambda: self._write(record, new_entries, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with its messages. Memories that rest on it fall.

        Raises:
            ConversationConflict: The stored record is another one.
        """
        await in_thread(lambda: self._delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return one message. Raises ``LookupError`` if it is not stored, or was redacted."""
        history = await self.read_history(entry_id, limit=1)
        if not history or history[-1].id != entry_id:
            raise LookupError(f"message {entry_id!r} was redacted")
        return history[-1]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the messages up to ``head_id``, or only the last ``limit``. Redacted messages are left out.

        A limit costs these messages and those of later branches, not the conversation.

        Raises:
            LookupError: A message is not stored.
        """
        if head_id is None or limit == 0:
            return []
        return await in_thread(lambda: self._history(head_id, limit))

    def _newest(self, run: str) -> Snapshot:
        return self.store.load_run(self.agent, run, types=(ConversationSaved.event_type,), last=1)

    def _record_in(self, newest: Snapshot) -> ConversationRecord | None:
        data = newest.log[-1].data if newest.log else None
        if not isinstance(data, ConversationSaved):
            return None
        record = _RECORD.validate_json(data.record)
        for entry_id in (record.head_id, *record.branches):
            if entry_id is not None:
                self._remember(joined_id(entry_id), newest.run)
        return record

    def _remember(self, key: str, run: str) -> None:
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        self._places[key] = run

    def _records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        runs = runs_of(self.store, self.agent)
        if scope is not None:
            runs = [run for run in runs if map_in(run.meta.get(OWN)).get("scope") == scope]
        runs.sort(key=lambda run: run.updated, reverse=True)
        records: list[ConversationRecord] = []
        for run in runs:
            if len(records) == limit:
                break
            record = self._record_in(self._newest(run.run))
            if record is not None:
                records.append(record)
        return records

    def _write(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], expected_revision: str | None
    ) -> None:
        run = joined_id(record.conversation_id)
        newest = self._newest(run)
        self._check(newest, record.conversation_id, expected_revision)
        events: list[Event] = []
        before = new_entries[0].parent_id if new_entries else record.head_id
        if before is not None and self.store.find_events(self.agent, run, [joined_id(before)])[0] is None:
            events += self._copies(before, record.conversation_id)
        for entry in new_entries:
            events += events_of(entry.id, entry.parent_id, entry.message)
        events.append(new_event(ConversationSaved(_text_of(record)), timestamp=record.updated_at))
        meta: dict[str, JsonValue] = {OWN: {"conversation": record.conversation_id, "scope": record.scope}}
        try:
            self.store.append_events(self.agent, run, *events, expected_version=newest.version, meta=meta)
        except VersionConflict as error:
            raise ConversationConflict(record.conversation_id) from error
        if record.head_id is not None:
            self._remember(joined_id(record.head_id), run)

    def _check(self, newest: Snapshot, conversation_id: str, expected_revision: str | None) -> None:
        stored = self._record_in(newest)
        if (None if stored is None else stored.revision) != expected_revision:
            raise ConversationConflict(conversation_id)

    def _copies(self, entry_id: str, conversation_id: str) -> list[Event]:
        """Return copies of the messages of another conversation up to one of them."""
        try:
            history = self._chain(joined_id(entry_id), None)
        except LookupError as error:
            raise ConversationConflict(conversation_id) from error
        events = [event for message in history for event in message.events]
        return [
            new_event(event.data, timestamp=event.timestamp, labels=event.labels, event_id=event.event_id)
            for event in events
        ]

    def _delete(self, conversation_id: str, expected_revision: str) -> None:
        run = joined_id(conversation_id)
        self._check(self._newest(run), conversation_id, expected_revision)
        self.store.delete_run(self.agent, run)

    def _history(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        stored = [message for message in self._chain(joined_id(head_id), limit) if message.events]
        return [
            ConversationEntry(id=message.entry_id, parent_id=message.parent_id, message=content)
            for message, content in zip(stored, messages_of(stored), strict=True)
        ]

    def _chain(self, head: str, limit: int | None) -> list[StoredMessage]:
        """Return the messages up to ``head``, or only the last ``limit``, the oldest first."""
        run = self._run_of(head)
        last = None if limit is None else limit * _EVENTS_A_MESSAGE
        while True:
            snapshot = self.store.load_run(self.agent, run, types=CONVERSATION_TYPES, last=last)
            messages = stored_messages(snapshot.log)
            chain: list[StoredMessage] = []
            key: str | None = head
            while key is not None and key in messages and len(chain) != limit:
                chain.append(messages[key])
                key = messages[key].parent
            if key is None or len(chain) == limit:
                return chain[::-1]
            if last is None or snapshot.after < snapshot.first_seq:
                raise LookupError(f"message {key!r} is not stored")
            last *= 2

    def _run_of(self, key: str) -> str:
        """Return a run that holds a message. Without a hint, all conversations are looked at."""
        hint = self._places.get(key)
        runs = [run.run for run in runs_of(self.store, self.agent) if run.run != hint]
        for run in runs if hint is None else [hint, *runs]:
            if self.store.find_events(self.agent, run, [key])[0] is not None:
                self._remember(key, run)
                return run
        raise LookupError(f"message {key!r} is not stored")


def _text_of(record: ConversationRecord) -> str:
    try:
        return _RECORD.dump_json(record).decode()
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidArgument(f"the record of a conversation must be JSON: {error}") from error
