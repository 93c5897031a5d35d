"""`repair`: a repaired copy of a model or of a file of vectors, and what changed."""
