"""Two processes share the messages of a loop, and keep their order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from agent_memory_log import open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.processor.transport.ledger import MessageHandled
from tests.processor.deployment import AGENT, LEDGERS, Deployment, deployed
from tests.waiting import PATIENCE

CONSUMER = "memory-compaction"


def handled(deployment: Deployment) -> list[str]:
    """Return the kinds of the messages in the ledger of the loop."""
    with open_sync_store(deployment.store) as store:
        events = store.load_run(LEDGERS, "loop/l1").log
    return [event.data.kind for event in events if isinstance(event.data, MessageHandled)]


async def test_later_messages_of_a_loop_wait_for_one_that_another_process_handles(tmp_path: Path) -> None:
    loops = [{"agent": AGENT, "scopes": {"user": "{user_id}"}}]
    async with deployed(tmp_path, "l1", loops=loops, ack_seconds=600, concurrency=1) as deployment:
        first = deployment.start("extract:before:1")
        await deployment.send("compaction_starting", "l1", user_id="ann")
        assert first.read() == "reached"
        deployment.start()
        await deployment.send("compaction_complete", "l1")
        await deployment.send("compaction_starting", "l1", user_id="ben")
        await deployment.send("compaction_complete", "l2", user_id="ann")
        async with asyncio.timeout(PATIENCE):
            while (await deployment.stream.consumer_info("AGENT", CONSUMER)).num_redelivered != 2:
                assert not handled(deployment)
                await asyncio.sleep(0.05)
        first.go_on()
        await deployment.settled()
        assert handled(deployment) == ["compaction_starting", "compaction_complete"]
        ((_, _, data),) = await deployment.stored("agent.context.injected.l1")
        assert "l1-python" in json.loads(data)["context"]
        with open_sync_store(deployment.store) as store:
            memory = SyncMemoryClient(store)
            assert memory.of(Principal("default", {"user": "ann"})).get(key="language") is not None
            assert not memory.of(Principal("default", {"user": "ben"})).list()
