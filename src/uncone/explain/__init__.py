"""Why is it degenerate? From numbers to causes in the user's words, among known models, and to a picture."""

from uncone.explain.advice import Advice, advice_for
from uncone.explain.findings import find
from uncone.explain.known import Kind, kind_of, place, place_value, placed_among_known
from uncone.explain.negative_direction import uniformly_negative_direction
from uncone.explain.picture import draw_picture
from uncone.explain.settable import settable_tokens
from uncone.explain.tokens import Role, TokenReader, counts_of, role_of
from uncone.explain.unreachable import unreachable_tokens
from uncone.explain.verdict import give_verdict
from uncone.lazy import open_room

__all__ = [
    "Advice", "Kind", "Role", "TokenReader", "advice_for", "counts_of", "draw_picture", "find",
    "give_verdict", "kind_of", "place", "place_value", "placed_among_known", "role_of", "settable_tokens",
    "uniformly_negative_direction", "unreachable_tokens",
]  # fmt: skip

open_room(__name__)
