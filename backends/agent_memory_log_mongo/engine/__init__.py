"""How operations are carried out: within a time, on threads and on tasks, and with what a handle knows."""
