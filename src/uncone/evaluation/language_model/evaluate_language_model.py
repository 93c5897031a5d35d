"""`evaluate_language_model`: losses of a text by the frequency of its tokens."""

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from uncone.arguments import whole_number
from uncone.errors import need_torch
from uncone.evaluation.language_model.record import NAMES, By, LanguageModelEvaluation, Ratio, Repetition, TokenGroup
from uncone.model.counts import as_counts
from uncone.model.text_sources import read_texts
from uncone.records.text import number
from uncone.roles import Model, Progress, Read, Source, Texts
from uncone.rows import Array
from uncone.statistics.blocks import FEWEST_BLOCKS, block_sums, ratio_interval
from uncone.version import versions

MOST_TARGETS = 200_000
_LETTERS = 16  # letters of a text per token, on average, at most


def evaluate_language_model(
    model: Model,
    text: Texts,
    *,
    counts: Source = None,
    data: Read = None,
    most: int = MOST_TARGETS,
    continuations: int = 64,
    seed: int = 0,
    device: str | None = None,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> LanguageModelEvaluation:
    """Measure how well a causal language model predicts a text, separately for frequent, medium and rare tokens.

    Each group of ids gets a loss and a log ratio: the logarithm of the mean probability that the model gives to its ids
    over the share of targets that have one of them. Intervals are 95%, by a bootstrap over documents, or over windows
    of one text.

    Args:
        model: a directory of transformers with its tokenizer, or the name of a cached one.
        text: a text file in UTF-8, JSON lines or Parquet, also packed as .gz or .xz, or a list of texts.
        counts: how often each id occurs in the text that trained the model: a file that `uncone count` wrote, or an
            array (V,). Without counts there are no groups.
        data: a file of passages, one per line, whose last words are predicted (LAMBADA).
        most: how many tokens to predict at most, from the start of the text.
        continuations: how many pieces of the text the model continues; 0 for none.
        seed: for the bootstrap.
        device: the device that runs the model, such as "cuda"; the CPU by default.
        dtype: the precision of the run, such as "bfloat16"; float32 by default. Losses are computed in float32.
        progress: called with (the step, done, in all).

    Raises:
        InputError: no such model or text, too few tokens, or counts of another length.
        UnsupportedModel: no causal model with one linear head.
    """
    need_torch("uncone.evaluate_language_model")
    from uncone.evaluation.language_model.continuations import continued, distinct, repeated_4
    from uncone.evaluation.language_model.last_words import last_words, read_passages
    from uncone.evaluation.language_model.scores import by_ids, by_mass, repeated, score
    from uncone.model.last_states import open_causal, states_of

    whole_number(continuations, "continuations", 0)
    passages = None if data is None else read_passages(data)
    causal = open_causal(model, device=device, dtype=dtype)
    v = len(causal.head.weight)
    known = None if counts is None else as_counts(counts, v)
    texts = read_texts(text, _LETTERS * most) if isinstance(text, str | os.PathLike) else list(text)
    states = states_of(causal, texts, most=most, progress=progress)
    cuts = [] if known is None else [by_ids(known.counts), by_mass(known.counts)]
    scores = score(states, cuts, progress, causal.head.weight.device)
    labels, inputs, windows, of_text = (
        one.numpy() for one in (states.labels, states.inputs, states.windows, states.texts) if one is not None
    )
    are_documents = len(np.unique(of_text)) >= FEWEST_BLOCKS
    blocks = np.unique(of_text if are_documents else windows, return_inverse=True)[1]
    resampled = _Resampled(blocks, seed)
    groups = list[TokenGroup]()
    for place, (by, cut) in enumerate(zip(("ids", "mass"), cuts, strict=False)):
        masses = scores.masses[:, 4 * place : 4 * place + 4]
        groups += _groups(by, cut, labels, scores.loss, resampled, masses, scores.likeliest)  # type: ignore[arg-type]
    if cuts:
        groups += _groups("input", cuts[0], inputs, scores.loss, resampled)
    made, own = continued(causal, states, continuations, progress) if continuations else ([], [])
    again, wrong = repeated(scores.likeliest, inputs, windows), scores.likeliest != labels
    model_s = float(again.mean()), float((again & wrong).mean()), len(np.unique(scores.likeliest))
    text_s = float(repeated(labels, inputs, windows).mean()), None, len(np.unique(labels))
    repetition = (
        Repetition("model", *model_s, distinct(made), repeated_4(made)),
        Repetition("text", *text_s, distinct(own), repeated_4(own)),
    )
    loss = resampled.mean(scores.loss)
    name = Path(text).name if isinstance(text, str | os.PathLike) else "texts"
    of = "documents" if are_documents else "windows of the text"
    digest = sha256("\0".join(texts).encode()).hexdigest()[:16]
    return LanguageModelEvaluation(
        _verdict(causal.name, name, loss, groups),
        causal.name,
        name,
        len(labels),
        loss,
        tuple(groups),
        repetition,
        None if passages is None else last_words(causal, passages, seed=seed, progress=progress),
        _intervals(int(blocks.max()) + 1, of, seed),
        (*_left_out(len(labels), most, sum(map(len, texts))), *(() if known is None else known.notes)),
        {"seed": seed, "text": digest, "versions": versions("torch", "transformers")},
    )


def _intervals(blocks: int, of: str, seed: int) -> str:
    if blocks < FEWEST_BLOCKS:
        return (
            f"No intervals: they need {FEWEST_BLOCKS} {of.removesuffix(' of the text')}, and the text has {blocks:,}."
        )
    return f"Intervals: 95%, percentile bootstrap over {blocks:,} {of}, seed {seed}."


def _left_out(targets: int, most: int, letters: int) -> Iterator[str]:
    """A note if the text may continue after the part that was read."""
    if targets >= most or letters >= _LETTERS * most:
        yield f"Only the first {targets:,} tokens were predicted (`most` is {most:,}); the text after them was not."


class _Resampled:
    """Sums over blocks of tokens, and intervals of their ratios."""

    def __init__(self, blocks: Array, seed: int) -> None:
        self._blocks, self._seed = blocks, seed

    def mean(self, values: Array, where: Array | None = None) -> Ratio:
        """The mean of values (N,) `where` this is true."""
        inside = np.ones(len(values)) if where is None else where.astype(np.float64)
        return self.ratio(values * inside, inside)

    def ratio(self, over: Array, under: Array) -> Ratio:
        sums = block_sums(np.stack([over, under], axis=1), self._blocks)
        value = float(sums[:, 0].sum() / sums[:, 1].sum())
        return Ratio(value, *(ratio_interval(sums, 0, 1, value, self._seed) or (None, None)))


def _groups(
    by: By,
    cut: Array,
    ids: Array,
    loss: Array,
    resampled: _Resampled,
    masses: Array | None = None,
    likeliest: Array | None = None,
) -> Iterator[TokenGroup]:
    """The groups that have ids. `ids` (N,) are the ids to group."""
    for place, name in enumerate(NAMES):
        here, size = cut[ids] == place, int((cut == place).sum())
        if not size:
            continue
        found: dict[str, Any] = {}
        if here.any():
            found["loss"] = resampled.mean(loss, here)
        if masses is not None and likeliest is not None:
            found["predicted"] = float(masses[:, place].mean(dtype=np.float64))
            of_ids = np.unique(likeliest)
            found["unique_predicted"] = int((cut[of_ids] == place).sum())
            found["unique_targets"] = len(np.unique(ids[here]))
            if here.any() and found["predicted"] > 0:
                ratio = resampled.ratio(masses[:, place].astype(np.float64), here.astype(np.float64))
                found["log_ratio"] = _logarithm(ratio)
        yield TokenGroup(by, name, size, int(here.sum()), **found)


def _logarithm(ratio: Ratio) -> Ratio:
    low, high = ratio.low, ratio.high
    ends = (None, None) if low is None or high is None or low <= 0 else (float(np.log(low)), float(np.log(high)))
    return Ratio(float(np.log(ratio.value)), *ends)


def _verdict(name: str, text: str, loss: Ratio, groups: list[TokenGroup]) -> str:
    whole = f"{name} predicts {text} at a perplexity of {number(float(np.exp(min(loss.value, 700))))}"
    found = {group.name: group for group in groups if group.by == "ids" and group.perplexity is not None}
    if "rare" not in found or "frequent" not in found:
        return f"{whole}."
    rare, frequent = found["rare"], found["frequent"]
    of_both = (f"{number(one.perplexity or 0)} for {one.name}" for one in (frequent, rare))
    both = f"{whole}: {' and '.join(of_both)} targets."
    if rare.log_ratio is None:
        return both
    return f"{both} Rare targets get {number(float(np.exp(rare.log_ratio.value)))} of their share of the probability."
