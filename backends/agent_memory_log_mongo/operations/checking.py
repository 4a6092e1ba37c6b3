"""Checks each run for stored documents that differ from the written ones.

Commits are read as bytes in the order of their chain, so that an undecodable commit does not hide the others. A run
with a flaw is read a second time. A flaw that has disappeared was an append or a deletion in progress. Commits from
before a deletion may be missing, because the server removes the commits of an expired run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import cast

from bson import BSON
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from agent_memory_log.backend_kit import check_scope, now_microseconds
from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.store import Flaw
from agent_memory_log_mongo.documents.checksums import differences, run_sum
from agent_memory_log_mongo.documents.commits import Document, Head, Run, checked, head_of, is_sought, type_key
from agent_memory_log_mongo.engine.call import BYTES, PLAIN, Call
from agent_memory_log_mongo.engine.database import CHAIN
from agent_memory_log_mongo.operations.run_documents import order_of

_SAME = ("meta", "meta_json", "end", "expires_at")
"""The fields that are equal in a run's document and in its first commit."""


async def check(call: Call, agent: str | None, run: str | None) -> AsyncGenerator[Flaw]:
    """Yield the flaws of the store, of an agent's runs, or of one run."""
    check_scope(agent, run)
    call.codec = BYTES
    if agent is not None and run is not None:
        checked_run = Run.of(agent, run)
        for flaw in await _lasting_flaws(call, checked_run.key, checked_run):
            yield flaw
        return
    key = await _next_key(call, agent, b"")
    while key is not None:
        for flaw in await _lasting_flaws(call, key, None):
            yield flaw
        key = await _next_key(call, agent, key)


async def _next_key(call: Call, agent: str | None, key: bytes) -> bytes | None:
    """Return the key of the next run that has a document or, without ``agent``, has commits."""
    call.restart()
    where: Document = {"_id": {"$gt": key}}
    if agent is not None:
        where["agent"] = agent
    listed = await call.find(call.database.runs, where, sort={"_id": 1}, limit=1, fields={"_id": 1})
    keys: list[bytes] = [document["_id"] for document in listed]
    if agent is None:
        behind = {"k": {"$gt": key}}
        sort = {"k": 1, "s": 1}
        commits = await call.find(call.database.commits, behind, sort=sort, limit=1, fields={"k": 1}, hint=CHAIN)
        keys.extend(document["k"] for document in commits)
    # BSON sorts a shorter binary value first.
    return min(keys, key=lambda key: (len(key), key), default=None)


async def _lasting_flaws(call: Call, key: bytes, run: Run | None) -> list[Flaw]:
    """Return the flaws of one run. If any is damage, return only the flaws that a second read confirms."""
    flaws = await _flaws(call, key, run)
    if any(flaw.is_damage for flaw in flaws):
        await call.pause()
        before = frozenset(flaws)
        flaws = [flaw for flaw in await _flaws(call, key, run) if flaw in before]
    return flaws


async def _flaws(call: Call, key: bytes, run: Run | None) -> list[Flaw]:
    """Return the flaws that one read of a run shows."""
    chain = _Chain(key, run, is_summed=call.database.all_have_sums)
    numbered = {"k": key, "s": {"$gt": -1}}
    newest = await call.find_one(call.database.commits, numbered, sort={"s": -1}, fields={"s": 1})
    low = -1
    while newest is not None and low < newest["s"]:
        call.restart()
        # The loop ends at the commit that was newest at its start. Otherwise it might never end while others append.
        bounds = {"$gt": low, "$lte": newest["s"]}
        page = await call.find(call.database.commits, {"k": key, "s": bounds}, sort={"s": 1})
        if not page:
            break
        for commit in page:
            chain.take(commit)
        low = page[-1]["s"]
    chain.end()
    chain.take_list(await call.find_one(call.database.runs, {"_id": key}))
    return chain.flaws()


class _Chain:
    """The state and the flaws of one pass over a run's commits."""

    def __init__(self, key: bytes, run: Run | None, *, is_summed: bool) -> None:
        self._key = key
        self._run = run
        self._all_summed = self._is_summed = is_summed
        self._problems: list[tuple[int | None, str, bool]] = []
        self._place: int | None = 1  # expected position of the next commit; None after an unreadable one
        self._version = self._deletions = 0
        self._first: Document | None = None
        self._newest: Head | None = None
        self._emptied = self._nonempty = self._without_sums = 0

    def flaws(self) -> list[Flaw]:
        """Return the flaws."""
        agent, run = (self._run.agent, self._run.run) if self._run else (None, None)
        return [Flaw(agent, run, seq, message, damage) for seq, message, damage in self._problems]

    def take(self, document: Document) -> None:
        """Check the next commit of the chain."""
        try:
            commit = _decoded(document)
            (commit,) = checked([commit], "")
            head = head_of(commit, "")
            owner = Run.of(commit["agent"], commit["run"])
        except (BSONError, AgentMemoryLogError, KeyError, TypeError, AttributeError) as error:
            self._nonempty += 1
            self._add(self._version + 1, f"its commit cannot be read: {str(error).removeprefix(': ')}")
            self._place = None
            return
        if not head.count and head.is_empty:
            self._end_life()
            self._deletions = head.deletions
        elif not head.count:
            self._emptied += 1
        else:
            self._take_events(commit, head, owner)
        for seq, problem in differences(commit, required=self._is_summed):
            self._add(head.version - head.count + 1 if seq is None else seq, problem)
        self._is_summed = self._is_summed or "sums" in commit
        self._place, self._version = head.next_place, head.version

    def _take_events(self, commit: Document, head: Head, owner: Run) -> None:
        first = head.version - head.count
        expected = self._version if self._first is not None else head.base
        is_going = head.end is not None and head.end <= now_microseconds()  # the server removes its commits one by one
        if self._place is not None and not is_going and (head.place, first) != (self._place, expected):
            self._add(
                expected + 1,
                f"is missing: the next commit is at position {head.place} of the chain and begins with event "
                f"{first + 1}, but the next position is {self._place}",
            )
        elif head.deletions != self._deletions:
            self._add(first + 1, f"its commit counts {head.deletions} deletions, but the chain has {self._deletions}")
        self._deletions = head.deletions
        if owner.key != self._key:
            self._add(first + 1, f"its commit belongs to another run, {owner.name}")
        elif self._run is None:
            self._run = owner
        sought = {type_key(self._key, event_type) for event_type in _types(commit) if is_sought(event_type)}
        listed: list[object] | None = commit.get("t")
        if sought and (
            commit.get("ts") != head.place or type(listed) is not list or sought.difference(map(str, listed))
        ):
            self._add(first + 1, "reads by type miss its commit, because the field t or ts is incomplete")
        if self._first is None:
            self._first = commit
        self._newest = head
        self._nonempty += 1
        if "sums" not in commit and not self._is_summed:
            self._without_sums += head.count

    def _end_life(self) -> None:
        """Note a deletion. The events before it can no longer be read, so their problems are dropped."""
        self._problems.clear()
        if self._nonempty:
            message = f"was deleted, but {self._nonempty} earlier commits still hold events; delete the run again"
            self._add(None, message, is_damage=False)
        self._first = self._newest = None
        self._emptied = self._nonempty = self._without_sums = 0

    def end(self) -> None:
        """Check the totals after the last commit."""
        if self._emptied:
            self._add(None, f"{self._emptied} commits were emptied, but the run was not deleted")
        if self._without_sums:
            message = f"{self._without_sums} events have no checksum, because an older release stored them"
            self._add(None, message, is_damage=False)

    def take_list(self, document: Document | None) -> None:
        """Check the run's document."""
        if document is None:
            if self._newest is not None:
                self._add(None, "has no document, so it is not listed")
            return
        try:
            listed = _decoded(document)
            owner = Run.of(listed["agent"], listed["run"])
        except (BSONError, KeyError, TypeError, AttributeError) as error:
            self._add(None, f"its document cannot be read: {error!r}")
            return
        if owner.key == self._key:
            self._run = self._run or owner
        else:
            self._add(None, f"its document belongs to another run, {owner.name}")
        for problem in self._list_problems(listed):
            self._add(None, problem)

    def _list_problems(self, listed: Document) -> Iterator[str]:
        head, first = self._newest, self._first
        if "sum" in listed:
            if listed["sum"] != run_sum(self._key, listed):
                yield "its document differs from its checksum"
                return
        elif self._all_summed and "order" in listed:
            yield "its document has lost its checksum"
        if head is None or first is None:
            return  # a writer may have written the document and died before its first commit
        if "order" not in listed:
            yield "is not listed, because its document is marked as deleted"
        # If two writers create the run at once, the document may be the other writer's. That is no flaw.
        elif listed.get("c") == head.created and Run.of(listed["agent"], listed["run"]).key == self._key:
            order = order_of(head.created, Run.of(listed["agent"], listed["run"]).cursor_tie)
            is_same = [listed.get(name) for name in _SAME] == [first.get(name) for name in _SAME]
            if listed["order"] != order or not (is_same or first["v"] - first["n"] != head.base):
                yield "its document differs from its first commit in order, end or meta"
        ceiling = listed.get("ceiling")
        if head.end is not None and (not isinstance(ceiling, int) or ceiling < head.version):
            yield f"its document has the ceiling {ceiling!r}, below its version {head.version}"

    def _add(self, seq: int | None, message: str, *, is_damage: bool = True) -> None:
        self._problems.append((seq, message, is_damage))


def _decoded(document: Document) -> Document:
    return BSON(cast("RawBSONDocument", document).raw).decode(PLAIN)


def _types(commit: Document) -> Iterator[str]:
    """Yield the types of a commit's events. Skip types that are not strings."""
    events: list[object] = commit["events"]
    for event in events:
        event_type = cast("Document", event).get("type") if isinstance(event, dict) else None
        if isinstance(event_type, str):
            yield event_type
