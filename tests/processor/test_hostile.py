"""Hostile messages on a real server. Each ends as a dead letter, and the next message is handled."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from nats.js.api import StreamConfig

from agent_memory_log import UserMessage, new_event, open_sync_store
from tests.mongo.ports import HOST
from tests.processor.deployment import AGENT, LEDGERS, STREAM, SUBJECTS, Deployment, deployed
from tests.processor.test_transport import MUTATIONS, count, running

COMPACTION = b"agent.context.compaction."


async def publish(deployment: Deployment, subject: bytes, header: bytes, data: bytes) -> None:
    """Publish as a client that checks neither subjects nor headers."""
    reader, writer = await asyncio.open_connection(HOST, deployment.server.port)
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
    writer.write(b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(header), len(header) + len(data), header, data))
    writer.write(b"PING\r\n")
    while (await reader.readline()).strip() != b"PONG":
        pass
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("subject", "header"),
    [
        (COMPACTION + b"\xff", b""),
        (COMPACTION + "l1\u202e".encode(), b""),
        (COMPACTION + b"l1", b"Status: 503\r\n"),
        (COMPACTION + b"l1", b"Status: 404\r\nDescription: No Messages\r\n"),
        (COMPACTION + b"l1", b"\xff: \xff\r\n: \r\nno header\r\n"),
        (b"$KV.ENTITY_STATES.\xff", b"KV-Operation: x\r\n"),
    ],
)
async def test_hostile_message_holds_up_no_other(tmp_path: Path, subject: bytes, header: bytes) -> None:
    async with deployed(tmp_path, "l1") as deployment:
        await deployment.make_bucket()
        async with running(deployment) as (component, _):
            await publish(deployment, subject, b"NATS/1.0\r\n%b\r\n" % header, b"{")
            sent = [(await deployment.send("compaction_complete", "l1"), "compaction_complete", "l1")]
            await deployment.settled()
            await deployment.check(sent, buried=subject.startswith(COMPACTION))
            assert component.health().healthy
            assert not count(component, "failures", work="consumer")


@pytest.mark.parametrize(("size", "max_msg_size"), [(1_500_000, -1), (50_000, 20_000)])
async def test_memory_that_is_too_large_for_nats_holds_up_no_other(
    tmp_path: Path, size: int, max_msg_size: int
) -> None:
    async with deployed(tmp_path) as deployment:
        config = StreamConfig(name=STREAM, subjects=list(SUBJECTS), max_msg_size=max_msg_size)
        await deployment.stream.update_stream(config)  # pyright: ignore[reportUnknownMemberType]  # nats-py types it partly
        with open_sync_store(deployment.store) as log:
            for text in ("novel is " + "long " * (size // 5), "editor is vim"):
                log.append_events(AGENT, "l1", new_event(UserMessage(text)))
        async with running(deployment) as (component, store):
            await deployment.send("compaction_starting", "l1")
            await deployment.settled()
            assert component.health().unpublished == 0
            [letter] = [event.data.to_map() for event in (await store.load_run(LEDGERS, "dead-letters")).log]
            assert letter["port"] == "graph_mutations"
            assert isinstance(letter["size"], int)
            assert letter["size"] > size * 0.9
            assert "long long" not in str(letter)
            [(_, _, data)] = await deployment.stored(MUTATIONS)
            assert json.loads(data)["triples"][0]["object"] == "vim"
