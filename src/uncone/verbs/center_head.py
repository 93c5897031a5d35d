"""`center_head`: a language model whose head has no mean row, with the proof that no probability changed."""

from uncone.edits.head import center_head

__all__ = ["center_head"]
