-- The time at which a run expires, in microseconds since 1970 (UTC). It is NULL for a run that never expires or has no
-- events. Existing runs get NULL, even if their meta has an expires_at: it had no effect when they were written, and an
-- upgrade must not remove a run.
ALTER TABLE runs ADD COLUMN expires_at INTEGER;

CREATE INDEX runs_by_expiry ON runs (expires_at) WHERE expires_at IS NOT NULL;

-- A deleted run has no end. A trigger ensures this, because a process of the older release may still have the file open
-- and does not know the column. A run that it creates again must not expire at the end of the deleted run.
CREATE TRIGGER runs_deleted AFTER UPDATE OF deletions ON runs WHEN NEW.expires_at IS NOT NULL
BEGIN
    UPDATE runs SET expires_at = NULL WHERE id = NEW.id;
END;
