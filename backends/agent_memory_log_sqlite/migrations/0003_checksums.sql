-- Each row carries a CRC-32 of what makes it (sums.py says of what). Rows that are there already get none: a checksum made
-- now would certify whatever has happened to them. A run's unsummed is the last seq that may be without one; 0 for a run
-- that was created after this, whose row has one too.
ALTER TABLE events ADD COLUMN sum INTEGER;
ALTER TABLE runs ADD COLUMN unsummed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN sum INTEGER;
UPDATE runs SET unsummed = coalesce((
    SELECT id & 4294967295 FROM events WHERE id > runs.id << 32 AND id < runs.id + 1 << 32 ORDER BY id DESC LIMIT 1
), base);

-- A process of the older release that still has the file open must not write rows without checksums. Every statement of
-- it names this column, and so is refused from now on.
DROP TRIGGER runs_deleted;
ALTER TABLE runs RENAME COLUMN base TO base_seq;
