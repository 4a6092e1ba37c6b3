"""The operations that keep a memory in order, and that report about its state."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from agent_memory_log.memory.operations.fields import Scopes
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.records.reports.conflicts import ConflictPair
from agent_memory_log.memory.records.reports.outcomes import WriteReport
from agent_memory_log.memory.records.reports.upkeep import AuditEvent, Evolution, Health, MaintainReport

# Conflicts


class ListConflicts(Operation[tuple[ConflictPair, ...]], frozen=True):
    """Return the pairs of records that cannot both be true now, with the reason, the evidence and the trust in each.

    A write finds the conflicts of its record and stores them as links ``contradicts``. Both records stay active.
    """

    status: Annotated[Literal["open", "resolved"], Meta(description="``open`` or ``resolved``.")] = "open"
    scopes: Scopes = None


class Resolve(Operation[ConflictPair], frozen=True):
    """End a conflict: keep one record and archive the other, keep both, or replace both by one record.

    ``unresolve`` takes this back. Resolving a resolved conflict again changes nothing.

    Raises:
        InvalidArgument: The two records have no conflict, or there is no text for ``merged`` and no merger has one.
        MemoryStopped: The policy refuses the merged text. The error has the reason.
    """

    writes = True
    right = "write"
    positional = 2

    id: Annotated[str, Meta(description="The id of the first record.")]
    other: Annotated[str, Meta(description="The id of the second record.")]
    keep: Annotated[
        Literal["first", "second", "both", "merged"],
        Meta(description="``first``, ``second``, ``both`` or ``merged``."),
    ]
    text: Annotated[
        str, Meta(description="For ``merged``: the statement that replaces both. Default: the merger's answer.")
    ] = ""


class Unresolve(Operation[ConflictPair], frozen=True):
    """Open a resolved conflict again. A record that was archived is written again and gets a new id.

    Raises:
        InvalidArgument: The two records have no resolved conflict.
    """

    writes = True
    right = "write"
    positional = 2

    id: Annotated[str, Meta(description="The id of the first record.")]
    other: Annotated[str, Meta(description="The id of the second record.")]


# Upkeep


class Maintain(Operation[MaintainReport], frozen=True):
    """Keep the memory in order, in four steps: erase, age, find conflicts, consolidate. The report says why.

    First, memories that have lost their evidence are erased, as ``purge`` does. Then expired records are closed, and
    weak records are archived: those with a low retrievability that were not used for a long time. Then conflicts
    between records are found and linked. At the end, near-duplicates, old episodes about one topic, and keys of a
    large profile are replaced by one record each. ``separate`` undoes this, and ``restore`` brings an archived record
    back. Only lost evidence erases.

    The work is stored in small slices, with the position that was reached. So after a crash the next call continues
    there, and two processes share the work. Run it once a day, for example.
    """

    writes = True
    right = "write"

    dry_run: Annotated[bool, Meta(description="Only report what would be changed.")] = False
    limit: Annotated[
        int | None, Meta(ge=1, description="Look at about this many records; a later call continues. Default: all.")
    ] = None
    weak_below: Annotated[float, Meta(ge=0, le=1, description="Archive records with a lower retrievability.")] = 0.1
    unused_days: Annotated[
        float, Meta(ge=0, le=36_500, description="Archive only records that are unused for these days.")
    ] = 60
    episode_days: Annotated[
        float, Meta(ge=0, le=36_500, description="Consolidate only episodes that are unused for these days.")
    ] = 30
    profile_tokens: Annotated[
        int, Meta(ge=0, description="Consolidate keys that begin alike if the profile has more tokens.")
    ] = 2_000


class Separate(Operation[WriteReport], frozen=True):
    """Undo a consolidation: archive the record, and write the records again that it was made from.

    The records get new ids, and links ``restores`` to their archived forms. They are not consolidated again.

    Raises:
        InvalidArgument: There is no active record with this id that was consolidated.
        MemoryStopped: The policy refuses the memories. The error has the reason.
    """

    writes = True
    right = "write"
    positional = 1

    id: Annotated[str, Meta(description="The id of the consolidated record.")]


class CheckHealth(Operation[Health], frozen=True):
    """Return counts that show the state of the memory, such as open conflicts and events that were not learnt from."""


class AuditEvents(Operation[tuple[AuditEvent, ...]], frozen=True):
    """Return the changes of the memory: the records, the time, the reason and the source of each change.

    The newest change comes first. Changes of forgotten records are not returned.
    """

    since: Annotated[datetime | None, Meta(description="Only changes from this time on.")] = None
    until: Annotated[datetime | None, Meta(description="Only changes from before this time.")] = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="Return at most this many changes.")] = 100
    scopes: Scopes = None


class EvolutionEvents(Operation[Evolution | None], frozen=True):
    """Return the story of a record: its changes, and those of the records that it was made from.

    Return None for an unknown id.
    """

    positional = 1

    id: Annotated[str, Meta(description="The id of the record, active or not.")]
