"""Tokens that no state makes the most likely, and sets of tokens that states can set freely."""

from typing import Literal

from uncone.records.blocks import Blocks, Cell, Folded, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.rebuild import expect
from uncone.records.text import count, number, percent
from uncone.records.token_text import shown_token

_MOST_SHOWN, _MOST_NAMED = 20, 3


@part
class UnreachableToken:
    """A token that no state makes the most likely, and the certificate.

    Its row is the mean of the rows `others` by `weights`, which are positive and sum to 1. So for any state the largest
    logit of `others` is at least the token's logit, up to `bound` standard deviations of all logits.
    """

    id: int  # id
    token: str | None  # its text
    exact: bool  # no direction has any margin
    bound: float  # no direction has a larger margin
    others: tuple[int, ...]  # rows whose mixture is the row of the token
    weights: tuple[float, ...]  # their weights in the mixture
    other_tokens: tuple[str | None, ...] = ()  # tokens of the heaviest rows
    higher_bias: float = 0.0  # how much higher the mixture's bias is than the token's; 0 without biases

    def __post_init__(self) -> None:
        n, weights = len(self.others), len(self.weights)
        expect(n == weights, f"a weight for each of {n} rows of a mixture, got {weights}: the file was cut or edited")


@part
class UnreachableTokens:
    """Which tokens a head can never make the most likely, whatever its state (Demeter et al. 2020; Grivas et al. 2022).

    `reachable`, `unreachable`, `tied` and `undecided` sum to `vocabulary`.
    """

    verdict: str  # what was found
    vocabulary: int  # rows of the head
    dimensions: int  # columns
    biased: bool  # the head has a bias
    reachable: int  # tokens that some state makes the most likely, proven
    unreachable: int  # tokens that no state makes the most likely, proven
    exact: int  # unreachable tokens with no margin at all
    tied: int  # equal to an earlier row and bias: never alone on top
    undecided: int  # tokens with neither proof
    zero: int  # rows of zeros
    epsilon: float  # a smaller margin counts as none, of the typical row
    tokens: tuple[UnreachableToken, ...] = ()  # the first ones, with certificates
    tied_ids: tuple[int, ...] = ()  # ids of the first ties
    undecided_ids: tuple[int, ...] = ()  # ids of the first that are undecided
    states: int = 0  # states of a text
    seen: int = 0  # tokens that were the most likely for one of these states
    definition: str = ""  # the question, in words

    def blocks(self) -> Blocks:
        counts = {
            "can be the most likely": self.reachable,
            "can never be the most likely": self.unreachable,
            "never, beyond all rounding": self.exact,
            "can only tie, as another row is equal": self.tied,
            "undecided": self.undecided,
        }
        rows = ((words, count(n)) for words, n in counts.items())
        listed = tuple(map(_row, self.tokens[:_MOST_SHOWN]))
        columns = ("token", "id", "below a mixture of", "proof")
        return section(
            "Tokens that can never be predicted",
            Text(self.verdict, "lead"),
            numbers(("tokens", "number"), rows),
            Table(columns, listed, ("id",), "The first" if self.unreachable > len(listed) else ""),
            Text(self.definition, "quiet"),
        )


def _row(token: UnreachableToken) -> Row:
    named = sorted(zip(token.weights, token.others, strict=True), reverse=True)[:_MOST_NAMED]
    texts, more = (*token.other_tokens, *(None,) * len(named)), len(token.others) - len(named)
    parts = (f"{_name(text, place)} {percent(weight)}" for (weight, place), text in zip(named, texts, strict=False))
    rest = [f"and {count(more)} more"] if more else []
    rest += [f"with a bias higher by {number(token.higher_bias)}"] if token.higher_bias else []
    proof = "exact" if token.exact else f"to {number(token.bound)} sd of the logits"
    return _name(token.token, token.id), count(token.id), Cell(", ".join(parts), ", ".join(rest)), proof


def _name(text: str | None, place: int) -> str:
    if place < 0:  # in files of earlier versions the bias is one of the others
        return "a lower bias"
    return f"#{place}" if text is None else shown_token(text)


@part
class SettableSets:
    kind: Literal["random", "top"]  # `random`, or `top` of the states of a text
    size: int  # tokens in a set
    sets: int  # sets that were searched
    settable: int  # sets proven settable
    not_settable: int  # sets proven not settable
    undecided: int  # sets with neither proof


@part
class SettableTokens:
    """How many tokens a state can put above all others with any probabilities among them.

    A set of tokens is settable if some direction has them level and above all other rows, and their rows are affinely
    independent: then a state reaches every distribution over them, to any precision.
    """

    verdict: str  # what was found
    vocabulary: int  # rows of the head
    dimensions: int  # columns
    random: int  # largest size at which half of the random sets can be set
    top: int | None  # largest size at which half of the sets of likeliest tokens can be set
    gaussian: int  # the same for a head of normal rows
    sizes: tuple[SettableSets, ...]  # the sets of each size
    definition: str = ""  # the question, in words

    def blocks(self) -> Blocks:
        kinds = {"random": "random tokens", "top": "most likely tokens of a state"}

        def row(one: SettableSets) -> tuple[str, ...]:
            numbers = map(count, (one.sets, one.settable, one.not_settable, one.undecided))
            return f"{count(one.size)} {kinds[one.kind]}", *numbers

        columns = ("tokens", "sets", "settable", "not", "undecided")
        return section(
            "How many top tokens can be set freely",
            Text(self.verdict, "lead"),
            Folded("By the size of the set", shown(numbers(columns, map(row, self.sizes)))),
            Text(self.definition, "quiet"),
        )
