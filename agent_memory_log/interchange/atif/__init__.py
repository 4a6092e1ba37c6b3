"""Converts runs to and from ATIF, the Agent Trajectory Interchange Format, without loss.

``to_atif`` writes a document, ``from_atif`` reads one, and ``import_atif`` appends the runs of a document to a store.
"""

from agent_memory_log.interchange.atif.reading import AtifRun, from_atif
from agent_memory_log.interchange.atif.storing import import_atif
from agent_memory_log.interchange.atif.writing import to_atif

__all__ = ["AtifRun", "from_atif", "import_atif", "to_atif"]
