"""Two processes of ``amlog processor run`` are killed at random moments, again and again, and started again.

Nothing is lost, nothing happens twice, and the messages of a loop keep their order.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

from agent_memory_log import (
    AssistantMessage,
    Checkpoint,
    InjectedContext,
    SyncStore,
    UserMessage,
    new_event,
    open_sync_store,
)
from agent_memory_log.processor.transport.ledger import MessagesPublished, OutgoingMessage
from tests.processor.deployment import AGENT, LEDGERS, RESULTS, Deployment, Processor, deployed, ledgers
from tests.waiting import PATIENCE

LOOPS = ("l1", "l2", "l3", "l4")
ROUNDS = 20
MESSAGES = 12
"""The messages of a round. Each of them adds at least one event to a ledger."""


async def test_processes_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    moments = random.Random(1)
    async with deployed(tmp_path) as deployment:
        running: list[Processor] = []
        sent: list[tuple[int, str, str]] = []
        for number in range(ROUNDS):
            starts = [asyncio.to_thread(deployment.start_command) for _ in range(2 - len(running))]
            running += await asyncio.gather(*starts)
            size = add_turns(deployment, LOOPS if number == 0 else moments.choices(LOOPS))
            for _ in range(MESSAGES):
                kind, loop_id = moments.choice(sorted(RESULTS)), moments.choice(LOOPS)
                sent.append((await deployment.send(kind, loop_id), kind, loop_id))
            await until_grown(deployment, size + moments.randint(1, MESSAGES))
            await asyncio.sleep(moments.uniform(0, 0.02))
            for _ in range(moments.choice((1, 1, 2))):
                running.pop(moments.randrange(len(running))).kill()
            await deployment.check_checkpoints()
        running.append(await asyncio.to_thread(deployment.start_command))
        await deployment.settled()
        await deployment.check(sent, key="favorite_language")
        for processor in running:
            await asyncio.to_thread(processor.end)
        await deployment.check(sent, key="favorite_language")
        checkpoints = await deployment.check_checkpoints()
        assert checkpoints == sum(kind == "compaction_starting" for _, kind, _ in sent)
        with open_sync_store(deployment.store) as store:
            check_results(store)


def add_turns(deployment: Deployment, loop_ids: list[str] | tuple[str, ...]) -> int:
    """Add two turns to the runs of loops, and return the number of events in the ledgers."""
    with open_sync_store(deployment.store) as store:
        for loop_id in loop_ids:
            is_new = not store.load_run(AGENT, loop_id).version
            payloads = [
                UserMessage(f"My favourite language is {loop_id}-python." if is_new else "Go on."),
                AssistantMessage("I decided to use pytest."),
                UserMessage("Go on."),
                AssistantMessage("Done."),
            ]
            store.append_events(AGENT, loop_id, *map(new_event, payloads))
        return sum(info.version for info in store.list_runs(LEDGERS).runs)


async def until_grown(deployment: Deployment, size: int) -> None:
    """Wait until the ledgers have a number of events."""
    with open_sync_store(deployment.store) as store:
        async with asyncio.timeout(PATIENCE):
            while sum(info.version for info in store.list_runs(LEDGERS).runs) < size:  # noqa: ASYNC110  # other processes set no event
                await asyncio.sleep(0.002)


def check_results(store: SyncStore) -> None:
    """Check that each context and checkpoint of a run belongs to one result, and that each result was published."""
    owners: Counter[str] = Counter()
    for name in ledgers(store):
        payloads = [event.data for event in store.load_run(LEDGERS, name).log]
        results = [payload for payload in payloads if isinstance(payload, OutgoingMessage)]
        published = {each for payload in payloads if isinstance(payload, MessagesPublished) for each in payload.ids}
        assert len(published) == len(results)
        owners.update(result.context.event_id for result in results if result.context is not None)
        owners.update(result.key for result in results if result.key)
    types = [InjectedContext.event_type, Checkpoint.event_type]
    logged = [event.event_id for loop_id in LOOPS for event in store.load_run(AGENT, loop_id, types=types).log]
    assert owners == Counter(logged)
