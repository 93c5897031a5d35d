"""Exact edits of a model's files, each with its proof: a head, rows of tokens, an encoder's last layers."""

from uncone.lazy import open_room

open_room(__name__)
