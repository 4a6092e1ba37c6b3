"""The memory stream: its events, the state that they fold to, snapshots of that state, and the cache of subjects."""
