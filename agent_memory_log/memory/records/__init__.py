"""The words of derived memory: kinds, candidates, records, principals, messages, reports, and what callers plug in."""
