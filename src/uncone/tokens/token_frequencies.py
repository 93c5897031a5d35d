"""What the counts of a text show: the law of tokens, how many tokens cover the text, and which never occur."""

from typing import Literal

import numpy as np

from uncone.measure.under_trained import known_unused
from uncone.model.token_counts import Counted
from uncone.records.text import count, counted, number, percent, plural
from uncone.records.token_text import token_texts
from uncone.rows import Array
from uncone.tokens.record import CountedToken, RankFrequency, TokenFrequencies, ZipfLaw
from uncone.tokens.zipf import FEWEST_COMPARED, LEVEL, coverage, drawn_ranks, fit_zipf

_FREQUENT, _UNSEEN, _DIGITS = 20, 20, 4
_WORD = "A word is a run of letters, digits and underscores, in lower case. The exponent of words has no interval."


def token_frequencies(of: Counted) -> TokenFrequencies:
    counts, labels, size = of.counts, of.vocabulary.labels, of.vocabulary.size
    unused, _ = known_unused(labels, size)
    added = of.vocabulary.tokenizer.get_added_tokens_decoder()
    unused[[i for i, token in added.items() if token.special and i < size]] = True
    unseen = np.flatnonzero((counts == 0) & ~unused)
    frequent = np.argsort(-counts, kind="stable")[: min(_FREQUENT, int((counts > 0).sum()))]

    def named(ids: Array) -> tuple[CountedToken, ...]:
        texts = zip(ids.tolist(), token_texts(labels, ids.tolist()), strict=True)
        return tuple(CountedToken(i, text, int(counts[i])) for i, text in texts)

    tokens, never = _by_rank("tokens", counts, of.blocks), int((counts == 0).sum())
    words = _by_rank("words", np.fromiter(of.words.values(), np.int64), None) if of.words else None
    return TokenFrequencies(
        verdict=_verdict(tokens, never, size),
        name=of.vocabulary.name,
        sources=of.sources,
        characters=of.characters,
        vocabulary=size,
        never_seen=never,
        reserved=never - len(unseen),
        tokens=tokens,
        words=words,
        frequent=named(frequent),
        unseen=named(unseen[:_UNSEEN]),
        word=_WORD if words else "",
        notes=of.notes,
    )


def _by_rank(unit: Literal["tokens", "words"], counts: Array, blocks: Array | None) -> RankFrequency:
    total, different = int(counts.sum(dtype=np.float64)), int((counts > 0).sum())  # a sum of int64 may wrap
    return RankFrequency(unit, total, different, fit_zipf(counts, blocks), coverage(counts), *drawn_ranks(counts))


def _verdict(tokens: RankFrequency, never: int, size: int) -> str:
    few, half = (one.tokens for one in tokens.coverage[:2])
    covers = f"{count(few)} {plural(few, 'token makes', 'tokens make')} up 30% of the text and {count(half)} half of it"
    unseen = f"{count(never)} of {counted(size, 'token')} never {plural(never, 'occurs', 'occur')}"
    return f"{law_sentence(tokens.law)} {covers[0].upper()}{covers[1:]}. {unseen}."


def law_sentence(law: ZipfLaw) -> str:
    value, gap = law.exponent.value, law.gap
    if value is None or gap is None:
        return f"Too little text to fit Zipf's law: {law.reason}."
    low, high = law.exponent.interval or (value, value)
    exponent = number(value, digits=_DIGITS)
    if high > low:
        exponent += f" ({number(low, digits=_DIGITS)} to {number(high, digits=_DIGITS)})"
    exponent, misses = f"exponent {exponent}", f"misses the share of the text by at most {percent(gap, precise=True)}"
    ranks = f"the {count(law.ranks)} most frequent"
    if law.ranks < FEWEST_COMPARED:
        few = f"{counted(law.ranks, 'rank')} cannot separate it from other laws: {FEWEST_COMPARED} or more may"
        return f"Undecided whether tokens follow Zipf's law, with {exponent}. {few}."
    bend = max(map(abs, law.bend.interval or (0.0,)))
    if law.follows == "no":
        p = min(rival.p for rival in law.rivals)
        why = f"its exponent is larger at the top of {ranks} than at their end"
        if p <= LEVEL:
            why = f"{law.named} fits the counts of {ranks} better (P {number(p, digits=2, most=2)})"
        return f"Tokens do not follow Zipf's law: {why}. The law with the nearest {exponent} {misses}."
    if law.follows == "undecided":
        open_ = f"No other law fits {ranks} better, but the exponent may change by {percent(bend)} along them"
        return f"Undecided whether tokens follow Zipf's law, with {exponent}. {open_}, and the law {misses}."
    alike = f"Along {ranks} the exponent changes by at most {percent(bend)}, and the law {misses}"
    return f"Tokens follow Zipf's law {law.follows}, with {exponent}. {alike}."
