"""Recording runs as they happen, with a line or two, so that they can be replayed.

A recorder is a context manager over a store, an agent and a run; ``tool_call`` is one inside it. ``SyncRunRecorder`` is
the same without ``await``.

    async with RunRecorder(store, "support-agent", "run-42") as recorder:
        await recorder.user("Where is my order?")
        await recorder.request("anthropic", "claude-opus-4-8", system=system, tools=tools)
        answer = await recorder.record_response(await client.messages.create(...))
        for asked in answer.tool_calls:
            async with recorder.tool_call(asked) as call:
                call.result(await run_tool(asked.data))

What has been acknowledged survives a crash; to go on where a run was left, give steps a ``key`` (see ``Recorder``).
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
