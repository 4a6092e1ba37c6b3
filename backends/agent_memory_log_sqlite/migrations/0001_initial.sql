-- One row for each run. A deleted run keeps its row, so that its seqs continue and are never assigned again.
CREATE TABLE runs (
    id         INTEGER PRIMARY KEY,          -- below 2^31: the upper half of an event's id
    agent      TEXT    NOT NULL,
    run        TEXT    NOT NULL,
    base       INTEGER NOT NULL DEFAULT 0,   -- the version at the last deletion: events have seqs above it
    deletions  INTEGER NOT NULL DEFAULT 0,   -- with redactions: tells a follower that what it has read no longer stands
    redactions INTEGER NOT NULL DEFAULT 0,
    created    INTEGER,                      -- microseconds since 1970 (UTC); NULL while the run holds no events
    meta       TEXT,                         -- JSON; NULL for none
    UNIQUE (agent, run)
);

CREATE INDEX runs_by_creation ON runs (created) WHERE created IS NOT NULL AND substr(agent, 1, 1) <> '@';

CREATE INDEX runs_by_agent ON runs (agent, created) WHERE created IS NOT NULL;

-- The id is (run << 32) | seq. It orders the events of a run, and the primary key refuses a second event at a seq.
CREATE TABLE events (
    id        INTEGER PRIMARY KEY,
    run       INTEGER NOT NULL,
    event_id  TEXT    NOT NULL,
    type      TEXT    NOT NULL,
    timestamp INTEGER NOT NULL,              -- microseconds since 1970 (UTC)
    labels    TEXT,                          -- JSON; NULL for none
    data      TEXT    NOT NULL,              -- JSON, without a tool call's payload and a tool result's result_json
    verbatim  TEXT                           -- that one, byte for byte; NULL for none
);

CREATE UNIQUE INDEX events_by_event_id ON events (run, event_id);

-- The index leaves out the four most common types. Index entries for them would make every append slower, and reads of
-- these types are rare. The condition does not use NOT IN, because SQLite would build its list for every inserted row.
CREATE INDEX events_by_type ON events (run, type)
    WHERE type <> 'assistant_message' AND type <> 'thinking' AND type <> 'tool_call' AND type <> 'tool_result';

-- For people with the sqlite3 shell.
CREATE VIEW log AS
    SELECT runs.agent, runs.run, events.id & 4294967295 AS seq, events.type,
           strftime('%Y-%m-%dT%H:%M:%S', events.timestamp / 1000000, 'unixepoch') AS time,
           events.event_id, events.labels, events.data, events.verbatim
    FROM events JOIN runs ON runs.id = events.run
    ORDER BY events.id;
