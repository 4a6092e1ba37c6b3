-- The erasure journal: one row for each redaction, and one for each call of delete_run. Rows are never changed or removed.
-- Rows of this migration have no checksum. Older releases did not note whether a run was deleted or had expired, so
-- every removed run counts as deleted.
CREATE TABLE erasures (
    position INTEGER PRIMARY KEY,            -- from 1, without gaps, in the order of the commits
    run      INTEGER NOT NULL,               -- the id of the run's row
    up_to    INTEGER NOT NULL,               -- for a deletion: all events up to this seq are gone; 0 for a redaction
    seqs     TEXT    NOT NULL,               -- for a redaction: the seqs of the redacted events as a JSON list
    sum      INTEGER
);

CREATE INDEX erasures_by_run ON erasures (run);

INSERT INTO erasures (run, up_to, seqs) SELECT id, base, '[]' FROM (
    SELECT id, base_seq AS base FROM runs WHERE deletions > 0 AND base_seq > 0 ORDER BY id
);
INSERT INTO erasures (run, up_to, seqs)
    SELECT run, 0, json_extract(data, '$.seqs') FROM events WHERE type = 'redaction' ORDER BY id;

-- A process of the older release may still have the file open, and must not remove events without a row in the journal.
-- All its statements use this column, so SQLite refuses them after the rename.
ALTER TABLE runs RENAME COLUMN deletions TO removals;

-- A UUID in its canonical form of lower case is stored as its 16 bytes, any other event id as text. The function
-- id_to_store (row_format.py) converts an id, and returns an id of another form as it is. The checksums are unchanged,
-- because they cover the text of an id.
UPDATE events SET event_id = id_to_store(event_id)
    WHERE length(CAST(event_id AS BLOB)) = 36 AND event_id GLOB '????????-????-????-????-????????????'
        AND event_id NOT GLOB '*[^0-9a-f-]*';

DROP VIEW log;
CREATE VIEW log AS
    SELECT agent, run, seq, type, time,
           iif(typeof(event_id) = 'text', event_id,
               lower(substr(digits, 1, 8) || '-' || substr(digits, 9, 4) || '-' || substr(digits, 13, 4) || '-'
                     || substr(digits, 17, 4) || '-' || substr(digits, 21))) AS event_id,
           labels, data, verbatim
    FROM (
        SELECT runs.agent, runs.run, events.id & 4294967295 AS seq, events.type,
               strftime('%Y-%m-%dT%H:%M:%S', events.timestamp / 1000000, 'unixepoch') AS time,
               events.event_id, hex(events.event_id) AS digits, events.labels, events.data, events.verbatim
        FROM events JOIN runs ON runs.id = events.run
        ORDER BY events.id
    );
