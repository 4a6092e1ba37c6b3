"""The benchmark of recall: conversations with labelled questions, and the rankers that search them for evidence."""
