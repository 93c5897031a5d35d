"""What changed between diagnoses, and whether for better or worse: from saved records alone."""
