"""The BSON documents of the collections, and their checksums."""
