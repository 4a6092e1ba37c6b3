"""The server: the operations of a store and of memory for other machines and other languages.

``store_operations`` and ``agent_memory_log.memory.operations`` are the table. Endpoints, documents and clients are made
from it.
"""
