"""The graph of memory: records, the entities that they name, and the links and relations between them."""
