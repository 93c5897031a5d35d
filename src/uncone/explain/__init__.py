"""Why is it degenerate? From numbers to causes in the user's words, and to a picture."""

from uncone.explain.advice import Advice, advice_for
from uncone.explain.findings import find
from uncone.explain.picture import draw_picture
from uncone.explain.tokens import Role, TokenReader, counts_of, role_of
from uncone.explain.verdict import give_verdict

__all__ = [
    "Advice",
    "Role",
    "TokenReader",
    "advice_for",
    "counts_of",
    "draw_picture",
    "find",
    "give_verdict",
    "role_of",
]
