"""Creates memories: derives them from runs, remembers, merges, decides and writes."""
