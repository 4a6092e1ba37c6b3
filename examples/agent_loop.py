"""An agent loop that fills its context, compacts it, is killed, and continues with its decisions in mind.

    python examples/agent_loop.py runs.db

The model is scripted, so the program needs no key. It decides something in its first answer, writes a file in each of
the next ones, and repeats the decision in its last one. It can only read the decision in its conversation, which has
been compacted by then. The loop runs in a process of its own, which kills itself in the middle of a tool call.
"""

# ruff: noqa: INP001, T201  # a program for a terminal, in a folder of programs

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_memory_log import AssistantMessage, Compaction, ToolCall, open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.models.tokens import estimate_tokens
from agent_memory_log.processor import Loop, SyncLoopMemory
from agent_memory_log.recording import SyncRunRecorder
from agent_memory_log.transcript import build

LOOP = Loop("coder", "task-7", Principal(tenant="demo", scopes={"user": "kim"}))
PROVIDER = "openai-chat"
CONTEXT_WINDOW = 1_200
COMPACT_AT = 0.8
FILES = 12
DIES_AT = 9


def answer(messages: Sequence[Any]) -> AssistantMessage | ToolCall:
    """Return what the scripted model says next. It knows nothing but its messages."""
    words = json.dumps(messages)
    written = max((int(number) for number in re.findall(r"part_(\d+)\.py", words)), default=0)
    decision = re.search(r"I'll use (\w+) for the cache", words)
    if decision is None:
        return AssistantMessage("I looked at the code. I'll use SQLite for the cache, because two processes share it.")
    if written < FILES:
        text = f"# Part {written + 1} of the cache. " + "It holds a few more lines. " * 6
        return ToolCall("", "write_file", payload_json=f'{{"path": "part_{written + 1}.py", "text": "{text}"}}')
    return AssistantMessage(f"Done. The cache has {written} parts, and uses {decision[1]}, as I decided.")


def compact(loops: SyncLoopMemory, recorder: SyncRunRecorder) -> None:
    """Save a checkpoint, replace the conversation by a sentence, and give the model the decisions of the run."""
    loops.extract(LOOP)
    checkpoint = loops.checkpoint(LOOP, reason="compaction_starting")
    recorder.record(Compaction("The work on the cache continues."))
    context = loops.hydrate_post_compaction(LOOP)
    print(f"compacted at version {checkpoint.version}; {context.tokens} tokens of context")


def begin(loops: SyncLoopMemory, recorder: SyncRunRecorder) -> None:
    """Begin the task, or continue where the last process died."""
    checkpoint = loops.latest_checkpoint(LOOP)
    if checkpoint is None:
        recorder.user("Build a cache that two processes can share.")
        loops.hydrate_pre_task(LOOP, "")
        return
    restored = loops.restore(checkpoint, provider=PROVIDER)
    print(f"restored {len(restored.transcript)} messages, {restored.tokens} tokens; decided: {restored.decisions[0]}")
    for event in restored.open_calls:
        with recorder.tool_call(event) as call:
            call.result("written")
        print(f"finished the call that was open: event {event.seq}")


def work(path: Path, *, dies: bool) -> None:
    """Run the loop until the model has no more calls."""
    with open_sync_store(f"sqlite:///{path}") as store, SyncRunRecorder(store, LOOP.agent, LOOP.run) as recorder:
        loops = SyncLoopMemory(
            store, SyncMemoryClient(store), context_window=CONTEXT_WINDOW, count_tokens=estimate_tokens
        )
        begin(loops, recorder)
        while True:
            progress = loops.progress(LOOP)
            if progress.utilization >= COMPACT_AT:
                compact(loops, recorder)
            reply = answer(build(store.load_run(LOOP.agent, LOOP.run), PROVIDER))
            if isinstance(reply, AssistantMessage):
                recorder.assistant(reply.message)
                if reply.message.startswith("Done"):
                    print(f"after {progress.iteration + 1} iterations: {reply.message}")
                    return
                continue
            with recorder.tool_call(reply.tool_name, reply.input()) as call:
                if dies and progress.iteration == DIES_AT:
                    os.kill(os.getpid(), signal.SIGKILL)
                call.result("written")


def main(path: Path) -> int:
    """Run the loop in a process that dies, and again in one that lives. Return the exit code of the latter."""
    code = 0
    for life in ("dies", "lives"):
        print(f"process {life}", flush=True)
        code = subprocess.run([sys.executable, __file__, path, life], check=False).returncode  # noqa: S603  # itself
    return code


if __name__ == "__main__":
    if len(sys.argv) == 2:  # noqa: PLR2004  # the program and the path
        sys.exit(main(Path(sys.argv[1])))
    work(Path(sys.argv[1]), dies=sys.argv[2] == "dies")
