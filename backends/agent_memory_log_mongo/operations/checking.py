"""Checking: whether what is stored is what was written, run by run.

Commits are read in the order of their chain, as bytes, so that one that cannot be decoded hides no other. A run in
which something was found is read again, and what is not found then was a deletion or an append under way. Of a life
that a deletion ended, commits may be gone: the server removes them where the run had an end.
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
"""The fields that a run's document and its first commit have in common."""


async def check(call: Call, agent: str | None, run: str | None) -> AsyncGenerator[Flaw]:
    """See ``Store.check``."""
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
    """The key of the next run that has a document, or without ``agent``, commits."""
    call.restart()
    where: Document = {"_id": {"$gt": key}}
    if agent is not None:
        where["agent"] = agent
    listed = await call.find(call.database.runs, where, sort={"_id": 1}, limit=1, fields={"_id": 1})
    keys: list[bytes] = [document["_id"] for document in listed]
    if agent is None:
        behind = {"k": {"$gt": key}}
        sort = {"k": 1, "s": 1}
        held = await call.find(call.database.commits, behind, sort=sort, limit=1, fields={"k": 1}, hint=CHAIN)
        keys.extend(document["k"] for document in held)
    # BSON's order: what is shorter comes first.
    return min(keys, key=lambda key: (len(key), key), default=None)


async def _lasting_flaws(call: Call, key: bytes, run: Run | None) -> list[Flaw]:
    """The flaws of one run; where there is damage, those that a second look finds too."""
    flaws = await _flaws(call, key, run)
    if any(flaw.is_damage for flaw in flaws):
        await call.pause()
        before = frozenset(flaws)
        flaws = [flaw for flaw in await _flaws(call, key, run) if flaw in before]
    return flaws


async def _flaws(call: Call, key: bytes, run: Run | None) -> list[Flaw]:
    """The flaws of one run."""
    chain = _Chain(key, run, is_summed=call.database.all_have_sums)
    numbered = {"k": key, "s": {"$gt": -1}}
    newest = await call.find_one(call.database.commits, numbered, sort={"s": -1}, fields={"s": 1})
    low = -1
    while newest is not None and low < newest["s"]:
        call.restart()
        # Up to what was the newest: there might be no end while others append.
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
    """What one walk along a run's commits has met."""

    def __init__(self, key: bytes, run: Run | None, *, is_summed: bool) -> None:
        self._key = key
        self._run = run
        self._all_summed = self._is_summed = is_summed
        self._problems: list[tuple[int | None, str, bool]] = []
        self._place: int | None = 1  # where the next commit belongs; None behind one that cannot be read
        self._version = self._deletions = 0
        self._first: Document | None = None
        self._newest: Head | None = None
        self._emptied = self._holding = self._without_sums = 0

    def flaws(self) -> list[Flaw]:
        """What was found."""
        agent, run = (self._run.agent, self._run.run) if self._run else (None, None)
        return [Flaw(agent, run, seq, message, damage) for seq, message, damage in self._problems]

    def take(self, document: Document) -> None:
        """The next commit."""
        try:
            commit = _decoded(document)
            (commit,) = checked([commit], "")
            head = head_of(commit, "")
            owner = Run.of(commit["agent"], commit["run"])
        except (BSONError, AgentMemoryLogError, KeyError, TypeError, AttributeError) as error:
            self._holding += 1
            self._add(self._version + 1, f"the commit that holds it cannot be read: {str(error).removeprefix(': ')}")
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
        begin = head.version - head.count
        expected = self._version if self._first is not None else head.base
        is_going = head.end is not None and head.end <= now_microseconds()  # its commits are removed, one by one
        if self._place is not None and not is_going and (head.place, begin) != (self._place, expected):
            self._add(
                expected + 1,
                f"is missing: behind it is the commit at place {head.place} of the chain, which begins with event "
                f"{begin + 1}, and the one at place {self._place} belongs there",
            )
        elif head.deletions != self._deletions:
            self._add(
                begin + 1, f"the run was deleted {head.deletions} times before it, and {self._deletions} were found"
            )
        self._deletions = head.deletions
        if owner.key != self._key:
            self._add(begin + 1, f"the commit that holds it is that of another run, {owner.name}")
        elif self._run is None:
            self._run = owner
        sought = {type_key(self._key, event_type) for event_type in _types(commit) if is_sought(event_type)}
        listed: list[object] | None = commit.get("t")
        if sought and (
            commit.get("ts") != head.place or type(listed) is not list or sought.difference(map(str, listed))
        ):
            self._add(begin + 1, "reads by type do not find the commit that holds it: its t or ts lacks something")
        if self._first is None:
            self._first = commit
        self._newest = head
        self._holding += 1
        if "sums" not in commit and not self._is_summed:
            self._without_sums += head.count

    def _end_life(self) -> None:
        """A deletion: of what was before it, nothing can be read any more."""
        self._problems.clear()
        if self._holding:
            message = f"was deleted, and {self._holding} commits from before that still hold events: delete it again"
            self._add(None, message, is_damage=False)
        self._first = self._newest = None
        self._emptied = self._holding = self._without_sums = 0

    def end(self) -> None:
        """There are no more commits."""
        if self._emptied:
            self._add(None, f"{self._emptied} commits were emptied, and the run was not deleted")
        if self._without_sums:
            message = f"{self._without_sums} events have no checksum: they were stored before there were any"
            self._add(None, message, is_damage=False)

    def take_list(self, document: Document | None) -> None:
        """The run's document."""
        if document is None:
            if self._newest is not None:
                self._add(None, "has no document, and so is not listed")
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
            self._add(None, f"its document is that of another run, {owner.name}")
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
            return  # it may have been announced, and never begun
        if "order" not in listed:
            yield "is not listed: its document says that it was deleted"
        # Another's document may stand where two created the run at once; it decides nothing.
        elif listed.get("c") == head.created and Run.of(listed["agent"], listed["run"]).key == self._key:
            order = order_of(head.created, Run.of(listed["agent"], listed["run"]).cursor_tie)
            is_same = [listed.get(name) for name in _SAME] == [first.get(name) for name in _SAME]
            if listed["order"] != order or not (is_same or first["v"] - first["n"] != head.base):
                yield "its document says another order, end or meta than its first commit"
        ceiling = listed.get("ceiling")
        if head.end is not None and (not isinstance(ceiling, int) or ceiling < head.version):
            yield f"its document has the ceiling {ceiling!r}, below its version {head.version}"

    def _add(self, seq: int | None, message: str, *, is_damage: bool = True) -> None:
        self._problems.append((seq, message, is_damage))


def _decoded(document: Document) -> Document:
    return BSON(cast("RawBSONDocument", document).raw).decode(PLAIN)


def _types(commit: Document) -> Iterator[str]:
    """The types of the events of a commit, where they are text."""
    events: list[object] = commit["events"]
    for event in events:
        event_type = cast("Document", event).get("type") if isinstance(event, dict) else None
        if isinstance(event_type, str):
            yield event_type
