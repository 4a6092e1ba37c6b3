"""Replays recorded runs: an agent's code receives the recorded model turns and tool results. ``diff`` compares runs.

    with Replayer(await store.load_run("support-agent", "run-42")) as replayer:
        turn = replayer.model_turn()
        for call in turn.tool_calls:
            result = replayer.tool_result(call)

The pytest fixture ``replay`` (``agent_memory_log.pytest_plugin``) turns a recorded run into a regression test.
"""

from agent_memory_log.replay.checking import Match
from agent_memory_log.replay.differences import Difference, differences
from agent_memory_log.replay.expectations import ModelTurn
from agent_memory_log.replay.replayer import ReplayedCall, ReplayedCallBlock, Replayer, value_of
from agent_memory_log.replay.run_diff import RunDiff, diff
from agent_memory_log.replay.sources import load_recording

__all__ = [
    "Difference",
    "Match",
    "ModelTurn",
    "ReplayedCall",
    "ReplayedCallBlock",
    "Replayer",
    "RunDiff",
    "diff",
    "differences",
    "load_recording",
    "value_of",
]
