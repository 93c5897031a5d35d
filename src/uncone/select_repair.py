"""`select_repair`: choose a repair on one half of the evidence and report on the other."""
