"""The collections' indexes and the schema's version, made by whoever opens a database first.

Each index is for one kind of read or one promise; ``docs/mongodb.md`` lists which. The prefix of all of them but the
runs' is ``k``, or holds it, so that ``k`` is the shard key.
"""

from __future__ import annotations

from agent_memory_log.errors import SchemaTooNew, StoreUnavailable
from agent_memory_log_mongo.documents import Document
from agent_memory_log_mongo.place import CHAIN, SOUGHT_TYPES, Place
from agent_memory_log_mongo.removal import REMOVAL_DELAY_SECONDS
from agent_memory_log_mongo.steps import Steps, ask, find, update

SCHEMA_VERSION = 2
"""What 1 stored had no sums; a database that was of version 1 remembers it as ``upgraded_from``."""

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


def prepare(place: Place) -> Steps[None]:
    """Make the indexes and note the schema, where that was not done, or the one before. Raises ``SchemaTooNew``."""
    found = yield from find(place.info, {"_id": "schema"}, place.level, limit=1)
    version = found[0].get("version") if found else None
    if version is not None:
        if not isinstance(version, int):
            raise StoreUnavailable(f"{place.info}: the schema's version is {version!r}: this is no store of ours")
        if version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"the collections {place.settings.collection_prefix}* have schema {version}, and this release knows "
                f"{SCHEMA_VERSION}: upgrade agent-memory-log",
                found=version,
                known=SCHEMA_VERSION,
            )
        place.all_have_sums = version == SCHEMA_VERSION and "upgraded_from" not in found[0]
        if version < SCHEMA_VERSION:
            raised = {"$set": {"version": SCHEMA_VERSION, "upgraded_from": version}}
            yield from update(place.info, {"_id": "schema", "version": version}, raised, place.concern)
        if (yield from _has_indexes(place)):
            return
    for collection, indexes in _indexes(place):
        yield from ask({"createIndexes": collection, "indexes": indexes})
    change = {"$setOnInsert": {"version": SCHEMA_VERSION}}
    yield from update(place.info, {"_id": "schema"}, change, place.concern, upsert=True)


def _indexes(place: Place) -> list[tuple[str, list[Document]]]:
    return [(place.commits, COMMIT_INDEXES), (place.runs, RUN_INDEXES)]


def _has_indexes(place: Place) -> Steps[bool]:
    """Whether the collections and their indexes are there: a restore may have left some out."""
    names = [collection for collection, _ in _indexes(place)]
    # Asked for first, as no server lists the indexes of a collection that is not there; a reader may do both.
    there = yield from ask(
        {
            "listCollections": 1,
            "filter": {"name": {"$in": names}},
            "nameOnly": True,
            "authorizedCollections": True,
        }
    )
    if len(there["cursor"]["firstBatch"]) < len(names):
        return False
    for collection, indexes in _indexes(place):
        reply = yield from ask({"listIndexes": collection, "cursor": {"batchSize": 100}})
        if not {index["name"] for index in indexes} <= {index["name"] for index in reply["cursor"]["firstBatch"]}:
            return False
    return True
