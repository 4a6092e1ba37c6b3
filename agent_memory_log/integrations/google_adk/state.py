"""The state of sessions, and the state that sessions of an app or a user share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.adk.sessions.state import State

from agent_memory_log.errors import EventConflict, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.payloads import EventData
from agent_memory_log.events.registry import register_payload
from agent_memory_log.integrations.google_adk.encoding import OWN
from agent_memory_log.integrations.messages import json_text
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import SyncStore


@register_payload
class SessionState(EventData, frozen=True):
    """The state of a session after an event that changed it, or after its creation. The texts are JSON maps.

    Attributes:
        state: The session's own state, or ``""`` if it is empty.
        created: The seq of the event that created the session. A later deletion of the run removes that event.
        app: The changes of the state that all sessions of the app share, or ``""``.
        user: The changes of the state that all sessions of the user share, or ``""``.
    """

    event_type = f"{OWN}.session_state"

    state: str
    created: int
    app: str = ""
    user: str = ""


@register_payload
class SharedState(EventData, frozen=True):
    """The whole state of an app or a user after a change, as the JSON text of a map."""

    event_type = f"{OWN}.shared_state"

    state: str


class SessionPlace(NamedTuple):
    """The ids of a session, and the run that holds it."""

    app: str
    user: str
    session: str

    @property
    def run_id(self) -> tuple[str, str]:
        """The agent and the run of the session."""
        return joined_id(OWN, self.app, self.user), joined_id(self.session)

    @property
    def shared_runs(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """For the app and the user, the prefix of keys of their state, and the run of ``google-adk`` that holds it."""
        app, user = joined_id("app", self.app), joined_id("user", self.app, self.user)
        return (State.APP_PREFIX, app), (State.USER_PREFIX, user)


class Changes(NamedTuple):
    """Changes of state by their scope, with keys without the prefix of the scope."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Changes:
        """Return the changes that keys with prefixes describe."""
        changes = cls({}, {}, {})
        for key, value in state.items():
            if key.startswith(State.APP_PREFIX):
                changes.app[key.removeprefix(State.APP_PREFIX)] = value
            elif key.startswith(State.USER_PREFIX):
                changes.user[key.removeprefix(State.USER_PREFIX)] = value
            elif not key.startswith(State.TEMP_PREFIX):
                changes.session[key] = value
        return changes

    def payload(self, before: str, created: int) -> SessionState:
        """Return the state of a session after these changes of the state ``before``."""
        state = {**map_of(before), **self.session}
        return SessionState(text_of(state), created, text_of(self.app), text_of(self.user))


def shared_state(store: SyncStore, run: str) -> dict[str, Any]:
    """Return the state in a run of shared state."""
    return _state_in(_newest(store, run))


def share(store: SyncStore, place: SessionPlace, event: Event) -> None:
    """Append the changes in a session's event to the runs of shared state, unless they were appended before."""
    data = event.data
    if isinstance(data, SessionState):
        event_id = joined_id(place.user, place.session, event.event_id)
        for (_, run), text in zip(place.shared_runs, (data.app, data.user), strict=True):
            if text:
                change_shared(store, run, map_of(text), event_id)


def change_shared(store: SyncStore, run: str, changes: Mapping[str, Any], event_id: str) -> None:
    """Append changes to a run of shared state, unless the run has an event with this id."""
    while True:
        newest = _newest(store, run)
        if store.find_events(OWN, run, [event_id])[0] is not None:
            return
        state = SharedState(text_of({**_state_in(newest), **changes}))
        try:
            store.append_events(OWN, run, new_event(state, event_id=event_id), expected_version=newest.version)
        except (VersionConflict, EventConflict):
            continue  # another event changed the state, or another caller appended this one
        return


def _newest(store: SyncStore, run: str) -> Snapshot:
    return store.load_run(OWN, run, types=(SharedState.event_type,), last=1)


def _state_in(newest: Snapshot) -> dict[str, Any]:
    data = newest.log[-1].data if newest.log else None
    return map_of(data.state) if isinstance(data, SharedState) else {}


def map_of(text: str) -> dict[str, Any]:
    """Return the map in a JSON text, which is ``""`` for an empty map."""
    return json.loads(text) if text else {}


def text_of(state: Mapping[str, Any]) -> str:
    """Return the JSON text of a map, or ``""`` if it is empty."""
    return json_text(state, "state") if state else ""
