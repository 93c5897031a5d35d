"""Undo it: fitted transformations, exact edits of a head, new values for untrained tokens."""
