"""Exact edits of a model's files, each with its proof: a head, rows of tokens, the last layers of an encoder."""
