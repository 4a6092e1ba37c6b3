"""The session service.

Each event of a session is appended to the session's run. If it changes state, a ``SessionState`` follows in the same
append. It has the session's own state, and the changes of the state that sessions share. Each shared state is a run of
its own, to which the changes are appended afterwards, with an id that comes from the event's id. If the process dies
in between, the next call that reads the session appends them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions
from google.adk.platform.time import get_time
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session

from agent_memory_log.errors import EventConflict, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.integrations.google_adk.encoding import (
    EVENT_TYPES,
    OWN,
    adk_events,
    events_of,
    fields_of,
    json_of,
    time_of,
)
from agent_memory_log.integrations.google_adk.state import (
    Changes,
    SessionPlace,
    SessionState,
    map_of,
    share,
    shared_state,
)
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.integrations.opening import AsyncStoreOwner, runs_of
from agent_memory_log.integrations.threads import in_thread
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.transcript.json_types import map_in


class _Current(NamedTuple):
    """A session's newest state, the version of its run, and the time of its newest event."""

    state: SessionState
    version: int
    updated: datetime


class MemoryLogSessionService(AsyncStoreOwner, BaseSessionService):
    """A session service that stores each session in a run.

        runner = Runner(app_name="shop", agent=agent, session_service=MemoryLogSessionService("sqlite:///runs.db"))

    The agent of a session is ``google-adk/APP/USER``, and its run is the id of the session. The runs ``app/APP`` and
    ``user/APP/USER`` of the agent ``google-adk`` hold the state that sessions share. In each part, ``/`` becomes
    ``%2F`` and ``%`` becomes ``%25``. An id that is too long ends in its hash. The run's meta has the parts as they
    were. As in ADK's own services, an id of a session has no white space around it.

    An append to a session that has changed since it was read raises ADK's ``StaleSessionError``. A repeated append
    stores nothing twice. Any number of event loops, threads and processes may use the same store.

    Args:
        store: The URL of a store, or an open store. A store that is opened from a URL is closed by ``close``.

    Raises:
        InvalidArgument: ``store`` is neither a URL nor an open store.
    """

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session and return it.

        Raises:
            AlreadyExistsError: The user has a session with this id.
            InvalidArgument: A value of ``state`` cannot be written as JSON.
        """
        place = SessionPlace(app_name, user_id, (session_id or "").strip() or str(uuid4()))
        changes = Changes.of(json_of(EventActions(state_delta=state or {}), "state").get("stateDelta", {}))
        return await in_thread(lambda: self._create(place, changes))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session, or None if there is no such session. ``config`` chooses the events to return.

        The newest events are those that were appended last. Reading them costs nothing for the other events.
        """
        place = SessionPlace(app_name, user_id, session_id.strip())
        return await in_thread(lambda: self._get(place, config or GetSessionConfig()))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, without their events. The session with the newest event comes last.

        Without ``user_id``, the sessions of all users of the app are returned, and all runs of the store are looked at.
        """
        sessions = await in_thread(lambda: list(self._list(app_name, user_id)))
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session. Shared state stays. Memories that rest on the session fall."""
        await in_thread(lambda: self._delete(SessionPlace(app_name, user_id, session_id.strip())))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that all sessions of a user share, with keys without ``user:``."""
        _, (_, run) = SessionPlace(app_name, user_id, "").shared_runs
        return await in_thread(lambda: shared_state(self.store, run))

    async def append_event(self, session: Session, event: AdkEvent) -> AdkEvent:
        """Append an event to a session. Partial events and keys with ``temp:`` are not stored.

        Raises:
            StaleSessionError: The session has changed since it was read.
            SessionNotFoundError: There is no such session.
            InvalidArgument: A value of the event cannot be written as JSON.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        # The session keeps what the store has, even if the caller is cancelled meanwhile.
        await in_thread(lambda: self._append(session, event))
        return event

    def _create(self, place: SessionPlace, changes: Changes) -> Session:
        agent, run = place.run_id
        meta: dict[str, JsonValue] = {OWN: dict(place._asdict())}
        while True:
            newest = self.store.load_run(agent, run, types=(SessionState.event_type,), last=1)
            if _state_in(newest) is not None:
                raise AlreadyExistsError(f"Session with id {place.session} already exists.")
            event = new_event(changes.payload("", newest.version + 1), timestamp=time_of(get_time()))
            try:
                stored = self.store.append_events(agent, run, event, expected_version=newest.version, meta=meta)
            except VersionConflict:
                continue  # another caller created it, or appended to a session that is deleted
            share(self.store, place, stored.events[0])
            return self._session(place, _current(stored.events[0], stored.version, event.timestamp), [])

    def _get(self, place: SessionPlace, config: GetSessionConfig) -> Session | None:
        while True:
            current = self._current(place)
            if current is None:
                return None
            events, version = self._events(place, current.state.created, config)
            if version == current.version:
                return self._session(place, current, events)

    def _list(self, app: str, user: str | None) -> Iterator[Session]:
        agent = None if user is None else SessionPlace(app, user, "").run_id[0]
        for info in runs_of(self.store, agent):
            ids = map_in(info.meta.get(OWN))
            if ids.get("app") == app and info.agent != OWN:
                place = SessionPlace(app, str(ids["user"]), str(ids["session"]))
                current = self._current(place)
                if current is not None:
                    yield self._session(place, current, [])

    def _delete(self, place: SessionPlace) -> None:
        self._current(place)  # it appends changes of shared state that are still missing
        self.store.delete_run(*place.run_id)

    def _append(self, session: Session, event: AdkEvent) -> None:
        place = SessionPlace(session.app_name, session.user_id, session.id)
        agent, run = place.run_id
        fields = fields_of(event)
        current = self._current(place)
        if current is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        version = self._version_of(session, place, current)
        events = events_of(fields, time_of(event.timestamp))
        changes = Changes.of(fields.get("actions", {}).get("stateDelta", {}))
        if any(changes):
            state = changes.payload(current.state.state, current.state.created)
            state_id = joined_id(event.id, "state")
            events.append(new_event(state, timestamp=events[0].timestamp, event_id=state_id))
        stored = self._stored(place, version, events)
        if stored is None:
            try:
                stored = self.store.append_events(agent, run, *events, expected_version=version).events
            except (VersionConflict, EventConflict) as error:
                raise _stale(session) from error
        share(self.store, place, stored[-1])
        session.last_update_time = stored[-1].timestamp.timestamp()
        session._storage_update_marker = str(stored[-1].seq)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # ADK's place for it
        self._commit_event_to_session(session, event)

    def _version_of(self, session: Session, place: SessionPlace, current: _Current) -> int:
        """Return the version of the run that a session shows."""
        marker = session._storage_update_marker  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # ADK's place for it
        if marker is not None:
            return int(marker)
        # The session comes from elsewhere. It is up to date if it has the newest event.
        newest, version = self._events(place, current.state.created, GetSessionConfig(num_recent_events=1))
        if [event.id for event in newest] != [event.id for event in session.events[-1:]]:
            raise _stale(session)
        return version

    def _stored(self, place: SessionPlace, version: int, events: list[Event]) -> tuple[Event, ...] | None:
        """Return the events as an earlier attempt stored them after ``version``, or None."""
        stored = self.store.find_events(*place.run_id, [event.event_id for event in events])
        earlier = tuple(event for event in stored if event is not None)
        if len(earlier) < len(events) or earlier[0].seq != version + 1 or earlier[0].data != events[0].data:
            return None
        return earlier

    def _current(self, place: SessionPlace) -> _Current | None:
        """Return the newest state of a session, or None. Append changes of shared state that are still missing."""
        agent, run = place.run_id
        while True:
            newest = self.store.load_run(agent, run, last=1)
            states = newest
            if _state_in(newest) is None:
                states = self.store.load_run(agent, run, types=(SessionState.event_type,), last=1)
            state = _state_in(states)
            if state is None:
                return None
            if states.version == newest.version:
                share(self.store, place, states.log[-1])
                return _Current(state, newest.version, newest.log[-1].timestamp)

    def _events(self, place: SessionPlace, created: int, config: GetSessionConfig) -> tuple[list[AdkEvent], int]:
        """Return the newest events of a session and the version of the run."""
        most, since = config.num_recent_events, config.after_timestamp
        agent, run = place.run_id
        last = None if most is None else max(most, 1)
        while True:
            snapshot = self.store.load_run(agent, run, types=EVENT_TYPES, last=last)
            log = [event for event in snapshot.log if event.seq > created]
            events = [event for event in adk_events(agent, run, log) if since is None or event.timestamp >= since]
            if most is None:
                return events, snapshot.version
            if last is None or len(events) >= most or snapshot.after < created:
                return events[max(len(events) - most, 0) :], snapshot.version
            last *= 2  # one event of ADK may be several events of the run

    def _session(self, place: SessionPlace, current: _Current, events: list[AdkEvent]) -> Session:
        state = map_of(current.state.state)
        for prefix, run in place.shared_runs:
            state |= {prefix + key: value for key, value in shared_state(self.store, run).items()}
        session = Session(
            app_name=place.app,
            user_id=place.user,
            id=place.session,
            state=state,
            events=events,
            last_update_time=current.updated.timestamp(),
        )
        session._storage_update_marker = str(current.version)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # ADK's place for it
        return session


def _stale(session: Session) -> StaleSessionError:
    return StaleSessionError(
        f"Session {session.id} has been modified in storage since it was read. Get the session again."
    )


def _state_in(newest: Snapshot) -> SessionState | None:
    """Return the state in the newest event, or None if the event is another one or the session was deleted."""
    data = newest.log[-1].data if newest.log else None
    return data if isinstance(data, SessionState) and data.created >= newest.first_seq else None


def _current(event: Event, version: int, updated: datetime) -> _Current:
    state = event.data
    assert isinstance(state, SessionState)  # noqa: S101  # the caller stored it
    return _Current(state, version, updated)
