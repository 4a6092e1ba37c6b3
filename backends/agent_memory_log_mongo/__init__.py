"""The MongoDB backend, for many processes that share one store on a replica set or a sharded cluster.

Open it with ``open_store("mongodb://host/database")``; ``mongodb+srv://`` works too. The URL takes the driver's options
and three options of this library:

- ``collection_prefix``: the beginning of every collection name (default ``amlog_``);
- ``max_event_bytes``: the size limit of one encoded event (default 12 MiB);
- ``verify``: ``on`` compares every document with its checksums when it is read (default ``off``).

The driver's option ``timeoutMS`` limits each call, including waits and retries (default 30,000). ``w`` and
``readConcernLevel`` default to ``majority``. Weaker values are accepted with a ``WeakerPromises`` warning.

You can also pass your own client. ``await MongoStore.open(client, "database")`` takes pymongo's ``AsyncMongoClient`` or
Motor's ``AsyncIOMotorClient``. ``SyncMongoStore.open(client, "database")`` takes pymongo's ``MongoClient``.

A database that the Go original wrote is not a store. Import it with
``amlog import go-mongodb mongodb://host/database``.
"""

from agent_memory_log_mongo.backend import backend
from agent_memory_log_mongo.operations.preparing import SCHEMA_VERSION
from agent_memory_log_mongo.settings import Settings, WeakerPromises
from agent_memory_log_mongo.store import MongoStore
from agent_memory_log_mongo.sync import SyncMongoStore

__all__ = [
    "SCHEMA_VERSION",
    "MongoStore",
    "Settings",
    "SyncMongoStore",
    "WeakerPromises",
    "backend",
]
