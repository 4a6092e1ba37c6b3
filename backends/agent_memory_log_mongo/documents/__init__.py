"""What stands in the collections."""
