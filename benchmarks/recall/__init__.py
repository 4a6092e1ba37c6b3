"""The benchmark of recall: conversations and labelled questions of our own, and what finds the evidence in them."""
