"""What takes memory away or carries it elsewhere: maintenance, forgetting, erasure, export and import."""
