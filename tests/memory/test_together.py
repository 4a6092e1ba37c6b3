"""Processes remember, derive and forget concurrently. Each record is stored once. Forgotten records do not return."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.memory import SyncMemoryClient, stream_of
from agent_memory_log.memory.stream.payloads import MemoryRemembered
from tests.memory.stores import TOGETHER, SaidPreferences
from tests.processes import finish, start

SECRET = "wolfram-4711-secret"
WRITES = 6
STATED = 8


@pytest.mark.parametrize("kind", ["sqlite", "mongo"])
def test_processes_can_write_and_forget_at_the_same_time(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url: str = f"sqlite:///{tmp_path / 'm.db'}" if kind == "sqlite" else request.getfixturevalue("mongo_uri")
    with open_sync_store(url) as store:
        texts = [f"stated {number}=v" for number in range(STATED)]
        texts.insert(STATED // 2, f"codeword={SECRET}")
        store.append_events("agent", "run", *(new_event(UserMessage(text)) for text in texts))
        writers = [start("remember_together", url, writer, str(WRITES)) for writer in ("one", "two")]
        forgetting = start("forget_together", url)
        assert finish(forgetting) == "1\n"
        for process in writers:
            finish(process)
        me = SyncMemoryClient(store, extractor=SaidPreferences(), max_keyed=None).of(TOGETHER)
        # Every write was stored exactly once.
        numbers = range(WRITES)
        written_values = {f"{writer} {number}" for writer in ("one", "two") for number in numbers}
        stated = {f"stated {number}" for number in range(STATED)}
        assert Counter(record.key for record in me.list()) == Counter({*written_values, *stated, "shared"})
        assert Counter(version.record.value for version in me.history("shared")) == Counter(written_values)
        for version in me.history("shared"):
            assert (version.record.status == "active") is (version.closed_at is None)
        stream = store.load_run(stream_of(TOGETHER.subject("user")), "records")
        remembered = [event.data for event in stream.log if isinstance(event.data, MemoryRemembered)]
        assert Counter(payload.key for payload in remembered if payload.evidence) == Counter(stated)
        # The forgotten value does not return.
        assert SECRET not in repr(stream.log)
        assert {outcome.action for outcome in me.rederive()[0].outcomes} == {"unchanged", "forgotten"}
        assert me.get(key="codeword") is None
        assert me.rebuild().equal
