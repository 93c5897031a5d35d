"""Why is it degenerate? From numbers to causes in the user's words, and to a picture."""

from uncone.explain.findings import find
from uncone.explain.picture import draw_picture
from uncone.explain.verdict import give_verdict

__all__ = ["draw_picture", "find", "give_verdict"]
