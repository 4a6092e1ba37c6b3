"""The types of memory: kinds, candidates, records, principals, messages, reports and the protocols for plug-ins."""
