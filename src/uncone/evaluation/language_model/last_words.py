"""The loss of the last word of passages (LAMBADA, Paperno et al. 2016)."""

import json
from collections.abc import Iterator

import numpy as np
import torch

from uncone.errors import InputError
from uncone.evaluation.language_model.record import LastWords, Ratio
from uncone.model.last_states import Causal, states_of_ids
from uncone.model.texts import longest_input
from uncone.regular import lines_of
from uncone.roles import Path_, Progress
from uncone.statistics.blocks import ratio_interval

_HOW = "give one passage per line, as text or as a JSON object with `text`"
_AT_ONCE = 512  # passages


def read_passages(path: Path_) -> list[str]:
    """Passages, one per line, plain or JSON lines with `text`, also packed. InputError: fewer than two passages, or one
    without a word before its last."""
    found = list[str]()
    for number, line in lines_of(path, how=_HOW):
        text = line.strip()
        if text.startswith("{"):
            try:
                text = str(json.loads(text)["text"]).strip()
            except (ValueError, KeyError, RecursionError, TypeError) as error:
                got = f"got something else in line {number} of {path}"
                raise InputError(f"expected a JSON object with `text`, {got}: {_HOW}") from error
        if text and len(text.split()) < 2:
            raise InputError(f"expected passages of at least two words, got one in line {number} of {path}: {_HOW}")
        found += [text] * bool(text)
    if len(found) < 2:
        raise InputError(f"expected passages in {path}, got {len(found)}: {_HOW}")
    return found


def last_words(causal: Causal, passages: list[str], *, seed: int = 0, progress: Progress | None = None) -> LastWords:
    """The tokens of a word are the tokens that end after its beginning. Of a long passage only the end is read."""
    nll, right = [], []
    for start in range(0, len(passages), _AT_ONCE):
        some = passages[start : start + _AT_ONCE]
        for loss, hit in _of(causal, some):
            nll.append(loss)
            right.append(hit)
        if progress is not None:
            progress("last words", len(nll), len(passages))
    sums = np.stack([np.ones(len(nll)), nll, right], axis=1)
    return LastWords(len(nll), *(_mean(sums, column, seed) for column in (1, 2)))


def _mean(sums: np.ndarray, column: int, seed: int) -> Ratio:
    value = float(sums[:, column].mean())
    return Ratio(value, *(ratio_interval(sums, column, 0, value, seed) or (None, None)))


def _of(causal: Causal, passages: list[str]) -> Iterator[tuple[float, float]]:
    encoded = causal.tokenizer.encode_batch(passages, add_special_tokens=False)
    longest, ids, lengths = longest_input(causal.model, 2048), [], []
    for one, text in zip(encoded, passages, strict=True):
        begin = len(text) - len(text.split()[-1])
        k = sum(end > begin for _, end in one.offsets)
        ids.append(torch.tensor(one.ids[-longest:]))
        lengths.append(min(k, len(ids[-1]) - 1))
    states = states_of_ids(causal, ids, most=sum(map(len, ids)))
    assert states.texts is not None
    ends = torch.bincount(states.texts, minlength=len(ids)).cumsum(0).tolist()
    for end, k in zip(ends, lengths, strict=True):
        at = slice(end - k, end)
        logs = states.logits(states.states[at]).log_softmax(1)
        own = states.labels[at]
        yield float(-logs.gather(1, own[:, None]).sum()), float((logs.argmax(1) == own).all())
