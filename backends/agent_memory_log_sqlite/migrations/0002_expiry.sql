-- The instant from which a run is refused, in microseconds since 1970 (UTC); NULL for none, and while it holds no events.
-- Runs that are there already get none, even where their meta holds an expires_at: it meant nothing when they were
-- written, and no upgrade may take a run away.
ALTER TABLE runs ADD COLUMN expires_at INTEGER;

CREATE INDEX runs_by_expiry ON runs (expires_at) WHERE expires_at IS NOT NULL;

-- A deleted run has no end. A trigger, because a process of the older release that still has the file open knows nothing
-- of the column, and what it begins anew must not end when the deleted run would have.
CREATE TRIGGER runs_deleted AFTER UPDATE OF deletions ON runs WHEN NEW.expires_at IS NOT NULL
BEGIN
    UPDATE runs SET expires_at = NULL WHERE id = NEW.id;
END;
