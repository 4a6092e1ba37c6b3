"""Walks the table: each operation has the same result, error and effect on every surface."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast, get_args

import pytest

from agent_memory_log import SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import AccessDenied, AgentMemoryLogError, InvalidArgument
from agent_memory_log.memory import (
    Candidate,
    Episode,
    Fact,
    Preference,
    Principal,
    Relation,
    SyncMemoryClient,
)
from agent_memory_log.memory.operations import METHODS
from agent_memory_log.memory.policy import MemoryExecution, MemoryPolicy
from agent_memory_log.memory.records.messages import ConversationTurn
from agent_memory_log.memory.records.quotas import Limit, Quotas
from agent_memory_log.memory.records.record import Record, Status
from agent_memory_log.memory.records.vectors import TextVectors
from agent_memory_log.memory.stream.context import Hooks
from agent_memory_log.service.grants import Grant
from tests.memory.stores import SaidPreferences, SetClock
from tests.memory.surfaces import GRANT, PRINCIPAL, SURFACES, Surface, SyncServedStore, hooks, http_sync, sync_client_of

_numbers = itertools.count()

RUN = ("chat", "today")

CALLS: Mapping[str, Sequence[dict[str, Any]]] = {
    "remember": [
        {"data": Fact("pet", "a beagle"), "tags": ["dog"], "scope": "workspace"},
        {"key": "language", "value": "german"},
        {},
        {"key": "password", "value": "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2},
    ],
    "write": [{"candidates": [Candidate(Preference("tone", "dry")), Candidate(Episode("error"), text="It failed")]}],
    "note_stop": [{"reason": "too long", "phase": "capture", "key": "tone"}],
    "get": [{"key": "language"}, {"id": "LANGUAGE"}, {"key": "nothing"}, {}, {"key": "x", "scope": "team"}],
    "list": [{}, {"kinds": ["episode"], "scopes": ["workspace"]}, {"status": "superseded"}],
    "update": [{"id": "LANGUAGE", "value": "german", "tags": []}, {"id": "unknown", "text": "x"}],
    "delete": [{"id": "LANGUAGE"}, {"id": "unknown"}],
    "restore": [{"id": "LANGUAGE"}, {"id": "unknown"}],
    "add": [
        {
            "content": "Ana Ruiz works at Acme",
            "source_id": "chat 7",
            "trust_score": 0.5,
            "causal_parent_id": "LANGUAGE",
        },
        {"content": "He speaks German", "supersedes_id": "LANGUAGE", "memory_type": "episodic"},
        {"content": " "},
        {"content": "x", "supersedes_id": "unknown"},
        {"content": "x", "causal_parent_id": "unknown"},
    ],
    "add_from_draft": [{"draft": Candidate(Relation("Ana", "works_at", "Acme"), tags=("job",))}],
    "trace": [{"id": "LANGUAGE"}, {"id": "unknown"}, {"id": "LANGUAGE", "depth": 0}],
    "trace_graph": [{"id": "LANGUAGE", "depth": 1}, {"id": "unknown"}],
    "neighbours": [{"node": "Acme"}, {"node": "acme", "valid_at": SetClock().time}, {"node": "nobody"}],
    "paths": [{"source": "Acme", "target": "Bob"}, {"source": "Acme", "target": "nobody", "as_of": SetClock().time}],
    "export_graph": [{}, {"format": "ntriples", "scopes": ["workspace"]}, {"format": "dot"}],
    "ingest": [
        {
            "turns": [ConversationTurn("user", "language=dutch"), ConversationTurn("assistant", "Goed.")],
            "source_id": "chat 7",
        },
        {"turns": [ConversationTurn("user", "hello")], "source_id": ""},
    ],
    "forget": [{"key": "language", "evidence": True}, {"id": "unknown"}, {"key": "language", "dry_run": True}],
    "forget_all": [{"scopes": ["user"], "runs": [RUN]}],
    "search": [{"query": "which language for the beagle?", "top_k": 3}, {"query": "x", "top_k": 0}],
    "context": [{"query": "which language?"}, {"query": "which language?", "max_tokens": 1}],
    "link_run": [{"agent": "chat", "run": "tomorrow", "scope": "workspace"}],
    "link_runs": [{"runs": [RUN, ("chat", "never")]}],
    "history": [{"key": "language"}],
    "as_of": [{"time": SetClock().time}],
    "explain": [{"id": "LANGUAGE"}, {"id": "unknown"}],
    "derive": [{"agent": "chat", "run": "today"}, {"agent": "chat", "run": "never"}],
    "rederive": [{}, {"runs": [RUN]}],
    "rebuild": [{}],
    "maintain": [{}, {"dry_run": True, "weak_below": 1, "unused_days": 0}, {"limit": 2}, {"limit": 0}],
    "separate": [{"id": "LANGUAGE"}, {"id": "unknown"}],
    "health": [{}],
    "audit_events": [{}, {"limit": 2, "since": SetClock().time, "scopes": ["user"]}, {"scopes": ["team"]}],
    "evolution_events": [{"id": "LANGUAGE"}, {"id": "unknown"}],
    "conflicts": [{}, {"status": "resolved", "scopes": ["user"]}],
    "resolve": [
        {"id": "NEW DIET", "other": "OLD DIET", "keep": "first"},
        {"id": "NEW DIET", "other": "OLD DIET", "keep": "both"},
        {"id": "NEW DIET", "other": "OLD DIET", "keep": "merged", "text": "eats fish"},
        {"id": "NEW DIET", "other": "LANGUAGE", "keep": "first"},
    ],
    "unresolve": [
        {"id": "KEPT", "other": "ARCHIVED"},
        {"id": "NEW DIET", "other": "OLD DIET"},
        {"id": "x", "other": "y"},
    ],
    "purge": [{}],
    "stats": [{}],
    "ask_consent": [{"kind": "preference", "key": "language"}, {"kind": "message"}],
    "give_consent": [{"kind": "fact", "scope": "workspace"}, {"kind": "fact", "scope": "team"}],
    "withdraw_consent": [{"kind": "preference", "key": "language", "evidence": True}, {"kind": "episode"}],
    "quotas": [{}, {"scopes": ["team"]}],
    "texts_to_embed": [{"model": "m", "dimension": 3}, {"model": "m", "dimension": 3, "scopes": ["team"]}],
    "store_vectors": [
        {"model": "m", "dimension": 3, "vectors": [TextVectors("user", "AQIDBAUG", "LANGUAGE")]},
        {"model": "", "dimension": 3, "vectors": []},
    ],
    "drop_vectors": [{}],
    "export_jsonl": [{}],
    "import_jsonl": [{"data": b'{"format":"agent-memory-log-records/1"}\n'}, {"data": b"no export"}],
}
"""The calls to compare, by the name of the operation. Words in capitals are ids of stored records: see ``IDS``."""

IDS = {
    "LANGUAGE": "english",
    "OLD DIET": "I am a vegetarian",
    "NEW DIET": "I eat steak",
    "KEPT": "I love jazz",
    "ARCHIVED": "I hate jazz",
}
"""The value of the record that each name means."""


def seed(store: SyncStore) -> None:
    """Store a run, and memories with a history in two scopes."""
    clock = SetClock()
    for number, text in enumerate(("We have a beagle", "language=english;colour=red", "hello", "hm")):
        event = new_event(UserMessage(text), event_id=f"message-{number}", timestamp=clock())
        store.append_events(*RUN, event)
    me = SyncMemoryClient(store, **hooks()).of(PRINCIPAL)
    me.remember(key="language", value="french")
    me.derive(*RUN)
    me.remember(Relation("Bob", "works_at", "Acme"))
    me.remember(Episode("error"), text="The beagle ate the build", scope="workspace", importance=0.2)
    ids = [
        me.remember(Fact(key, value)).record for key, value in (("diet", "I am a vegetarian"), ("meal", "I eat steak"))
    ]
    ids = [me.remember(Fact(key, value)).record for key, value in (("yes", "I love jazz"), ("no", "I hate jazz"))]
    assert ids[0] is not None
    assert ids[1] is not None
    me.resolve(ids[0].id, ids[1].id, keep="first")


def records_of(store: SyncStore) -> list[Record]:
    """Return the records with any status."""
    me = SyncMemoryClient(store, **hooks()).of(PRINCIPAL)
    return [record for status in get_args(Status) for record in me.list(status=status)]


async def outcome_of(surface: Surface, url: str, name: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Call a method on a new store. Return its result or error, and the records after it, as text without ids."""
    with open_sync_store(url) as store:
        seed(store)
        before = records_of(store)
        ids = {name: next(record.id for record in before if record.value == value) for name, value in IDS.items()}
        async with surface(url) as memory:
            try:
                result = getattr(memory, name)(**{key: ids.get(str(value), value) for key, value in arguments.items()})
                if inspect.isawaitable(result):
                    result = await result
                outcome = f"{result!r} {getattr(result, 'note', '')}"
            except AgentMemoryLogError as error:
                outcome = f"{type(error).__name__}: {error} {vars(error)}"
        after = records_of(store)
    outcome, state = re.sub('"sha256":"[^"]*"', "", outcome), repr(after)  # the digest of ids
    for record in [*before, *after]:
        outcome, state = (text.replace(record.id, f"<{record.text}>") for text in (outcome, state))
    return outcome, state


@pytest.mark.parametrize("name", METHODS)
def test_every_operation_is_the_same_on_every_surface(name: str) -> None:
    def outcome_on(surface: Surface, arguments: Mapping[str, Any]) -> tuple[str, str]:
        return asyncio.run(outcome_of(surface, f"memory:surface-{next(_numbers)}", name, arguments))

    with ThreadPoolExecutor(len(SURFACES)) as threads:  # a server takes a moment to stop
        for arguments in CALLS[name]:
            outcomes = list(threads.map(partial(outcome_on, arguments=arguments), SURFACES.values()))
            assert dict(zip(SURFACES, outcomes, strict=True)) == dict.fromkeys(SURFACES, outcomes[0])


def served_client(grant: Grant = GRANT, **hooks_of_client: Any) -> SyncMemoryClient:
    """Return a client of a served store, which holds the seed in memory."""
    url = f"memory:surface-{next(_numbers)}"
    store = open_sync_store(url)
    seed(store)
    return sync_client_of(SyncServedStore(SyncMemoryClient(store, **hooks()), grant), **hooks_of_client)


class _AnyHook:
    """Has the methods of a redactor, a merger and a reranker."""

    __call__ = merge = rerank = print


CHANGED_HOOKS: Mapping[str, Any] = {
    "policy": MemoryPolicy(),
    "execution": MemoryExecution(),
    "redactor": _AnyHook(),
    "extractor": SaidPreferences(),
    "max_keyed": None,
    "clock": SetClock(),
    "count_tokens": len,
    "merger": _AnyHook(),
    "index_bytes": 1,
    "quotas": Quotas(records=Limit(hard=1)),
    "reranker": _AnyHook(),
}


@pytest.mark.parametrize("name", [name for name in Hooks.__struct_fields__ if name != "embedder"])
def test_hooks_of_a_server_are_refused_on_the_client(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name} has no effect on a server.*configure it there"):
        served_client(**{name: CHANGED_HOOKS[name]})


def test_an_extractor_cannot_be_sent_to_a_server() -> None:
    with pytest.raises(InvalidArgument, match="extractor cannot be sent to a server"):
        served_client().of(PRINCIPAL).derive(*RUN, extractor=SaidPreferences())


def test_arguments_are_checked_before_they_are_sent() -> None:
    client = sync_client_of(cast("SyncServedStore", _Refusing()))
    with pytest.raises(InvalidArgument, match=r"^top_k must be an integer from 1"):
        client.of(PRINCIPAL).search("x", top_k=0)


class _Refusing:
    """A served store that must not be called."""

    def execute_memory(self, *_: object) -> None:
        raise AssertionError


def test_a_principal_may_only_narrow_the_token() -> None:
    client = served_client()
    narrow = client.of(Principal("acme", {"user": "1"}))
    assert {"language", "colour"} <= {record.key for record in narrow.list()}
    for wider in (
        Principal("acme", {"user": "2"}),
        Principal("other", {"user": "1"}),
        Principal("acme", {"team": "x"}),
    ):
        with pytest.raises(AccessDenied):
            client.of(wider).list()


def test_a_client_without_a_right_is_refused() -> None:
    reader = served_client(Grant("reader", frozenset({"read"}), PRINCIPAL, ("*",))).of(PRINCIPAL)
    assert reader.get(key="language") is not None
    with pytest.raises(AccessDenied, match="needs the right write"):
        reader.remember(key="language", value="german")


async def test_a_configured_client_reaches_no_more_than_its_token() -> None:
    async with http_sync(f"memory:surface-{next(_numbers)}") as client:
        client.remember(key="language", value="english")
        assert isinstance(client, SyncMemoryClient)
        narrow = client.of(Principal("acme", {"user": "1"}))
        assert [record.key for record in narrow.list()] == ["language"]
        with pytest.raises(AccessDenied):
            client.of(Principal("acme", {"user": "2"})).list()
