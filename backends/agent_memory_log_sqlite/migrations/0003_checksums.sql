-- Each row has a CRC-32 checksum of its columns (row_format.py). Existing rows get none, because a checksum computed now
-- would also cover damage from before. The column unsummed has the last seq of a run that may lack a checksum. It is 0
-- for a run that was created after this migration, and then the row of the run has a checksum too.
ALTER TABLE events ADD COLUMN sum INTEGER;
ALTER TABLE runs ADD COLUMN unsummed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN sum INTEGER;
UPDATE runs SET unsummed = coalesce((
    SELECT id & 4294967295 FROM events WHERE id > runs.id << 32 AND id < runs.id + 1 << 32 ORDER BY id DESC LIMIT 1
), base);

-- A process of the older release may still have the file open, and must not write rows without checksums. All its
-- statements use this column, so SQLite refuses them after the rename.
DROP TRIGGER runs_deleted;
ALTER TABLE runs RENAME COLUMN base TO base_seq;
