"""What memory writes: its events, the state they fold to, snapshots of it, and the streams of a subject."""
