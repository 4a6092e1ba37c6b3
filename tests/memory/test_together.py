"""Processes that remember, learn and forget at once: nothing twice, nothing lost, nothing forgotten comes back."""

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
COUNT = 6
STATED = 8


@pytest.mark.parametrize("kind", ["sqlite", "mongo"])
def test_processes_at_once(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url: str = f"sqlite:///{tmp_path / 'm.db'}" if kind == "sqlite" else request.getfixturevalue("mongo_uri")
    with open_sync_store(url) as store:
        said = [f"stated {number}=v" for number in range(STATED)]
        said.insert(STATED // 2, f"codeword={SECRET}")
        store.append_events("agent", "run", *(new_event(UserMessage(text)) for text in said))
        writers = [start("remember_together", url, writer, str(COUNT)) for writer in ("one", "two")]
        forgetting = start("forget_together", url)
        assert finish(forgetting) == "1\n"
        for process in writers:
            finish(process)
        me = SyncMemoryClient(store, extractor=SaidPreferences(), max_keyed=None).of(TOGETHER)
        # No write was lost, and none was made twice.
        numbers = range(COUNT)
        own = {f"{writer} {number}" for writer in ("one", "two") for number in numbers}
        stated = {f"stated {number}" for number in range(STATED)}
        assert Counter(one.key for one in me.list()) == Counter({*own, *stated, "shared"})
        assert Counter(one.record.value for one in me.history("shared")) == Counter(own)
        for one in me.history("shared"):
            assert (one.record.status == "active") is (one.closed_at is None)
        stream = store.load_run(stream_of(TOGETHER.subject("user")), "records")
        told = [event.data for event in stream.log if isinstance(event.data, MemoryRemembered)]
        assert Counter(one.key for one in told if one.evidence) == Counter(stated)
        # What was forgotten stays so.
        assert SECRET not in repr(stream.log)
        assert {one.action for one in me.rederive()[0].outcomes} == {"unchanged", "forgotten"}
        assert me.get(key="codeword") is None
        assert me.rebuild().equal
