"""The MongoDB backend: many runtimes in many processes, on replica sets and sharded clusters.

``open_store("mongodb://host/database")`` and ``mongodb+srv://`` take the driver's own options, and these:

- ``collection_prefix``: what the names of the collections begin with (default ``amlog_``);
- ``max_event_bytes``: the largest event, as encoded (default 12 MiB);
- ``verify``: ``on`` compares whatever is read with its checksums (default ``off``).

Of the driver's, ``timeoutMS`` is how long a call may take, waits and retries included (default 30,000), ``w`` and
``readConcernLevel`` are ``majority`` unless they say otherwise, which gives up promises and warns of it. Or hand in a
client of your own: ``await MongoStore.open(client, "database")`` with pymongo's ``AsyncMongoClient`` or Motor's
``AsyncIOMotorClient``, ``SyncMongoStore(client, "database")`` with pymongo's ``MongoClient``.

What the Go original keeps in MongoDB is no store: ``amlog import go-mongodb mongodb://host/database`` puts it into one.
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
