"""Records runs while they happen, so that they can be replayed.

A recorder is a context manager for one run in a store. Its method ``tool_call`` returns a second context manager for
one tool call. ``SyncRunRecorder`` has the same methods without ``await``.

    async with RunRecorder(store, "support-agent", "run-42") as recorder:
        await recorder.user("Where is my order?")
        await recorder.request("anthropic", "claude-opus-4-8", system=system, tools=tools)
        answer = await recorder.record_response(await client.messages.create(...))
        for requested in answer.tool_calls:
            async with recorder.tool_call(requested) as call:
                call.result(await run_tool(requested.data))

Acknowledged events survive a crash. Give each step a ``key`` to resume a run after a crash (see ``Recorder``).
"""

from agent_memory_log.recording.async_recorder import RunRecorder, ToolCallBlock
from agent_memory_log.recording.calls import RecordedCall
from agent_memory_log.recording.operations import RecordedResponse
from agent_memory_log.recording.recorder import Recorder
from agent_memory_log.recording.sync_recorder import SyncRunRecorder, SyncToolCallBlock

__all__ = [
    "RecordedCall",
    "RecordedResponse",
    "Recorder",
    "RunRecorder",
    "SyncRunRecorder",
    "SyncToolCallBlock",
    "ToolCallBlock",
]
