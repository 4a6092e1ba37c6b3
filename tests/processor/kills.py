"""Kills a processor or its server at a step of their work. The end state is that of an undisturbed run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tests.processor.deployment import deployed


async def kill_at(
    step: str, when: Literal["before", "after"], victims: Literal["processor", "server", "both"], folder: Path
) -> None:
    """Kill at the first time of a step, and check the end state. ``paused.py`` has the steps."""
    async with deployed(folder, "l1", "l2") as deployment:
        first = deployment.start(f"{step}:{when}:1")
        sent = [
            (await deployment.send(kind, loop_id), kind, loop_id)
            for loop_id in ("l1", "l2")
            for kind in ("compaction_starting", "compaction_complete", "gc_complete", "pre_task")
        ]
        await deployment.send_bytes("memory.hydrate.request.l1", b'{"type": 1}')
        if step == "entities":
            await deployment.settled()
            await deployment.change_entity("l1")
        assert first.read() == "reached"
        if victims in ("server", "both"):
            deployment.server.kill()
        if victims in ("processor", "both"):
            first.kill()
        else:
            first.go_on()
        if victims in ("server", "both"):
            deployment.server.start()
        else:
            await deployment.check_checkpoints()
        if victims in ("processor", "both"):
            deployment.start()
        await deployment.settled()
        if step == "entities":
            await deployment.knows_entity("l1")
        await deployment.check(sent, buried=1)
        assert deployment.processors[-1].stop() == "finished"
        await deployment.check(sent, buried=1)
