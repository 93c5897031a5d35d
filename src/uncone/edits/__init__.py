"""Exact edits of a model's files, each with its proof: a head, rows of tokens, an encoder's last layers."""
