"""The same work through other libraries that store what an agent did: ``make bench-peers``."""
