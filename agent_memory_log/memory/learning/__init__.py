"""What becomes memory: deriving from runs, remembering, merging, deciding and writing."""
