"""The parts of a head's record on the tokens that no state makes the most likely, and on sets that states can set
freely."""

from typing import Literal

from uncone.records.blocks import Block, Cell, Folded, Table, Text
from uncone.records.brief import part
from uncone.records.layout import section, shown
from uncone.records.text import count, number, percent
from uncone.records.token_text import shown_token

_MOST_SHOWN, _MOST_NAMED = 20, 3


@part
class UnreachableToken:
    """A token that no state makes the most likely, and the certificate.

    The row of the token is the mean of the rows `others` by `weights`, which are positive and sum to 1. So for any
    state the largest logit of `others` is at least the token's, but for at most `bound` standard deviations of all
    logits.
    """

    id: int  # id
    token: str | None  # its text
    exact: bool  # no direction has any margin
    bound: float  # no direction has more
    others: tuple[int, ...]  # rows whose mixture is the row of the token
    weights: tuple[float, ...]  # their mixture
    other_tokens: tuple[str | None, ...] = ()  # tokens of the heaviest
    higher_bias: float = 0.0  # how much higher the mixture's bias is than the token's; 0 without biases


@part
class UnreachableTokens:
    """Which tokens a head can never make the most likely, whatever its state (Demeter et al. 2020; Grivas et al. 2022).

    `reachable`, `unreachable`, `tied` and `undecided` sum to `vocabulary`.
    """

    verdict: str  # one sentence
    vocabulary: int  # rows of the head
    dimensions: int  # columns
    biased: bool  # the head has a bias
    reachable: int  # tokens that some state makes the most likely, proven
    unreachable: int  # tokens that none does, proven
    exact: int  # of those, with no margin at all
    tied: int  # equal to an earlier row and bias: never alone on top
    undecided: int  # neither proven
    zero: int  # rows of zeros
    epsilon: float  # a smaller margin counts as none, of the typical row
    tokens: tuple[UnreachableToken, ...] = ()  # the first ones, with certificates
    tied_ids: tuple[int, ...] = ()  # ids of the first ties
    undecided_ids: tuple[int, ...] = ()  # ids of the first that are undecided
    states: int = 0  # of a text
    seen: int = 0  # tokens that were on top for one of them
    definition: str = ""  # what was asked, in words

    def blocks(self) -> tuple[Block, ...]:
        counts = (
            ("can be the most likely", count(self.reachable)),
            ("can never be the most likely", count(self.unreachable)),
            ("of these beyond all rounding", count(self.exact)),
            ("can only tie, as another row is equal", count(self.tied)),
            ("undecided", count(self.undecided)),
        )
        listed = tuple(map(_row, self.tokens[:_MOST_SHOWN]))
        columns = ("token", "id", "below a mixture of", "proof")
        return section(
            "Tokens that can never be predicted",
            Text(self.verdict, "lead"),
            Table(("tokens", "number"), counts, ("number",)),
            Table(columns, listed, ("id",), "The first" if self.unreachable > len(listed) else ""),
            Text(self.definition, "quiet"),
        )


def _row(token: UnreachableToken) -> tuple[str | Cell, ...]:
    named = sorted(zip(token.weights, token.others, strict=True), reverse=True)[:_MOST_NAMED]
    texts = token.other_tokens or (None,) * len(named)
    parts = (f"{_name(text, place)} {percent(weight)}" for (weight, place), text in zip(named, texts, strict=False))
    rest = [f"and {count(len(token.others) - len(named))} more"] if len(token.others) > len(named) else []
    rest += [f"with a bias higher by {number(token.higher_bias)}"] if token.higher_bias else []
    proof = "exact" if token.exact else f"to {number(token.bound)} sd of the logits"
    return _name(token.token, token.id), count(token.id), Cell(", ".join(parts), ", ".join(rest)), proof


def _name(text: str | None, place: int) -> str:
    if place < 0:  # of records of earlier versions, in which the bias is one of the others
        return "a lower bias"
    return f"#{place}" if text is None else shown_token(text)


@part
class SettableSets:
    """Of `sets` sets of `size` tokens so many are proven settable, proven not to be, and undecided."""

    kind: Literal["random", "top"]  # `random`, or `top` of the states of a text
    size: int  # tokens of a set
    sets: int  # asked
    settable: int  # proven
    not_settable: int  # proven not to be
    undecided: int  # neither


@part
class SettableTokens:
    """How many tokens a state can put above all others with any probabilities among them.

    A set of tokens is settable if some direction has them level and above all other rows, and their rows are affinely
    independent: then every distribution over them is reached by a state, to any precision.
    """

    verdict: str  # one sentence
    vocabulary: int  # rows of the head
    dimensions: int  # columns
    random: int  # largest size of which half of the random sets can be set
    top: int | None  # largest size of which half of the likeliest tokens of states can be set
    gaussian: int  # the same of a head of normal rows
    sizes: tuple[SettableSets, ...]  # what was asked of each size
    definition: str = ""  # what was asked, in words

    def blocks(self) -> tuple[Block, ...]:
        columns = ("tokens", "sets", "settable", "not", "undecided")
        kinds = {"random": "random tokens", "top": "most likely tokens of a state"}
        rows = tuple(
            (
                f"{count(one.size)} {kinds[one.kind]}",
                *map(count, (one.sets, one.settable, one.not_settable, one.undecided)),
            )
            for one in self.sizes
        )
        return section(
            "How many top tokens can be set freely",
            Text(self.verdict, "lead"),
            Folded("By the size of the set", shown(Table(columns, rows, columns[1:]))),
            Text(self.definition, "quiet"),
        )
