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
