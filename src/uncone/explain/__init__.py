"""Why is it degenerate? From numbers to causes in the user's words, and to a picture."""

from uncone.explain.findings import find, give_verdict
from uncone.explain.known import Kind, kind_of, place, place_value
from uncone.explain.picture import draw_picture
from uncone.explain.tokens import Role, TokenReader, counts_of, role_of

__all__ = [
    "Kind",
    "Role",
    "TokenReader",
    "counts_of",
    "draw_picture",
    "find",
    "give_verdict",
    "kind_of",
    "place",
    "place_value",
    "role_of",
]
