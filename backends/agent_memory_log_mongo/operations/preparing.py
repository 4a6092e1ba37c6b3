"""Creates the indexes and the schema version when a database is opened for the first time.

``docs/mongodb.md`` lists the purpose of each index. Both unique indexes of the commits begin with ``k``, so ``k`` can
be the shard key.
"""

from __future__ import annotations

from agent_memory_log.errors import InvalidArgument, SchemaTooNew, StoreUnavailable
from agent_memory_log_mongo.documents.commits import Document
from agent_memory_log_mongo.engine.call import Call
from agent_memory_log_mongo.engine.database import CHAIN, SOUGHT_TYPES
from agent_memory_log_mongo.go_original import DEFAULT_COLLECTION
from agent_memory_log_mongo.operations.journal import BY_RUN, fill_journal
from agent_memory_log_mongo.operations.removing import REMOVAL_DELAY_SECONDS

SCHEMA_VERSION = 3
"""The schema version. Version 1 had no checksums, and version 2 no erasure journal.

An upgraded database has the field ``upgraded_from``.
"""

COMMIT_INDEXES: list[Document] = [
    {"name": CHAIN, "key": {"k": 1, "s": 1}, "unique": True},
    {"name": "event_ids", "key": {"k": 1, "events.id": 1}, "unique": True},
    {"name": SOUGHT_TYPES, "key": {"t": 1, "ts": 1}, "sparse": True},
    {"name": "removal", "key": {"expires_at": 1}, "sparse": True, "expireAfterSeconds": REMOVAL_DELAY_SECONDS},
]
RUN_INDEXES: list[Document] = [
    {"name": "all_runs", "key": {"order": 1}},
    {"name": "agents_runs", "key": {"agent": 1, "order": 1}},
    {"name": "users_runs", "key": {"own": 1, "order": 1}},
    {"name": "ends", "key": {"end": 1, "_id": 1}},
]

_FIRST_WITH_SUMS = 2
ERASURE_INDEXES: list[Document] = [{"name": BY_RUN, "key": {"k": 1, "_id": 1}}]


async def prepare(call: Call) -> None:
    """Create the missing indexes, and write or upgrade the schema version.

    Raises ``SchemaTooNew`` for a newer version, and ``InvalidArgument`` if the database holds only data of the Go
    original.
    """
    schema = await call.find_one(call.database.info, {"_id": "schema"}) or {}
    version = schema.get("version")
    if version is not None:
        if not isinstance(version, int):
            raise StoreUnavailable(
                f"{call.database.info}: the schema version is {version!r}, not an integer; another program may have "
                "written this collection, so choose another collection_prefix"
            )
        if version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"the collections {call.database.settings.collection_prefix}* have schema version {version}, but this "
                f"release supports up to {SCHEMA_VERSION}; upgrade agent-memory-log",
                actual=version,
                supported=SCHEMA_VERSION,
            )
        oldest = schema.get("upgraded_from", version)
        call.database.all_have_sums = oldest >= _FIRST_WITH_SUMS
        if version < SCHEMA_VERSION:
            await fill_journal(call)
            raised = {"$set": {"version": SCHEMA_VERSION, "upgraded_from": oldest}}
            await call.update(call.database.info, {"_id": "schema", "version": version}, raised)
        if await _has_indexes(call):
            return
    else:
        await _check_original(call)
    for collection, indexes in _indexes(call):
        await call.ask({"createIndexes": collection, "indexes": indexes})
    change = {"$setOnInsert": {"version": SCHEMA_VERSION}}
    await call.update(call.database.info, {"_id": "schema"}, change, upsert=True)


async def _check_original(call: Call) -> None:
    """Raise ``InvalidArgument`` if the database has runs of the Go original and no store."""
    # The server hides the collection from a user who may not read it. Such a user does not want to import it.
    existing = await _existing(call, DEFAULT_COLLECTION, call.database.commits)
    if existing == {DEFAULT_COLLECTION}:
        fields = ("agent_id", "run_id", "events")
        where = {name: {"$exists": True} for name in fields}
        if await call.find_one(DEFAULT_COLLECTION, where, fields={"_id": 1}):
            raise InvalidArgument(
                f"the database holds runs of the Go original in {DEFAULT_COLLECTION}, and no store; import them with "
                "amlog import go-mongodb 'mongodb://HOST/DATABASE' --store TARGET_URL, and open the target"
            )


async def _existing(call: Call, *names: str) -> set[str]:
    """Return the names of those collections that exist and that this user may see."""
    reply = await call.ask(
        {
            "listCollections": 1,
            "filter": {"name": {"$in": names}},
            "nameOnly": True,
            "authorizedCollections": True,
        }
    )
    return {collection["name"] for collection in reply["cursor"]["firstBatch"]}


def _indexes(call: Call) -> list[tuple[str, list[Document]]]:
    return [
        (call.database.commits, COMMIT_INDEXES),
        (call.database.runs, RUN_INDEXES),
        (call.database.erasures, ERASURE_INDEXES),
    ]


async def _has_indexes(call: Call) -> bool:
    """Return whether all collections and indexes exist. A restore may have omitted some."""
    names = [collection for collection, _ in _indexes(call)]
    # The collections are checked first, because listing the indexes of a missing collection fails.
    if len(await _existing(call, *names)) < len(names):
        return False
    for collection, indexes in _indexes(call):
        reply = await call.ask({"listIndexes": collection, "cursor": {"batchSize": 100}})
        if not {index["name"] for index in indexes} <= {index["name"] for index in reply["cursor"]["firstBatch"]}:
            return False
    return True
