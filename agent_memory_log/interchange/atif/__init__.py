"""ATIF, the Agent Trajectory Interchange Format: runs to and from the tools that speak it, without loss.

document = to_atif(snapshot)
found = from_atif(document)
assert list(found.events) == list(snapshot.log)
"""

from agent_memory_log.interchange.atif.reading import AtifRun, from_atif
from agent_memory_log.interchange.atif.storing import import_atif
from agent_memory_log.interchange.atif.writing import to_atif

__all__ = ["AtifRun", "from_atif", "import_atif", "to_atif"]
