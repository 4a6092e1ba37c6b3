"""What memory writes: its events, the state they fold to, snapshots of it, and the subjects that are kept warm."""
