"""New rows of tokens."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from uncone.errors import InputError, first_line
from uncone.model.directory import rows_at_once, some_of
from uncone.model.hugging_face import attempt, tokenizer_class
from uncone.moments import Moments
from uncone.rows import Rows, SelectedRows, nonfinite_rows
from uncone.tensors import blocks_of, of_array

Tensor = torch.Tensor
SPREAD = 0.1  # of the trained rows' deviation: so near the mean a drawn row is unlikely everywhere


@dataclass(frozen=True)
class Trained:
    mean: Tensor  # (D,), float64
    mean_norm: float
    covariance: Tensor | None  # (D, D), float64, shrunk; None unless requested
    shrinkage: float | None


def trained_rows(rows: Rows, kept: Tensor, *, with_covariance: bool) -> Trained:
    """Mean, and on request the shrunk covariance, of the rows at `kept` (int64, ascending): (1 - s) S + s (tr S / D) I,
    where S is the rows' covariance and s the share with the least expected squared error (Ledoit & Wolf 2004). s is at
    least 1e-6, so that there is a Cholesky factor even with fewer rows than features."""
    if len(kept) == 0:
        raise InputError("expected trained rows to make new rows from, got none: name fewer ids")
    chosen = SelectedRows(rows, kept.numpy())
    bad = kept[nonfinite_rows(chosen)].tolist()
    if bad:
        got = f"got NaN or inf in {some_of(bad)}: name these rows too, so that they also get new rows"
        raise InputError(f"expected finite rows to learn from in {rows.name}, {got}")
    moments = Moments.of(chosen, second=with_covariance, unit_first=False)
    covariance, shrinkage = _shrunk(chosen, moments) if with_covariance else (None, None)
    return Trained(of_array(moments.mean()), moments.mean_norm(), covariance, shrinkage)


def new_rows(
    rows: Rows, ids: Sequence[int], parts: Mapping[int, tuple[int, ...]], trained: Trained, *, seed: int
) -> Tensor:
    """The new rows (len(ids), D) in float64: the mean of an id's `parts`, or the mean of the trained rows for an id
    without parts. With a covariance, rows that would be `alike` get 0.1 times a normal vector with it added."""
    made, drawn = (
        trained.mean.expand(len(ids), -1).clone(),
        torch.zeros(len(ids), len(trained.mean), dtype=torch.float64),
    )
    if trained.covariance is not None:
        generator = torch.Generator().manual_seed(seed)
        normal = torch.randn(drawn.shape, generator=generator, dtype=torch.float64)
        drawn = SPREAD * normal @ torch.linalg.cholesky(trained.covariance).T
        same = alike(ids, parts)
        drawn[[i not in same for i in ids]] = 0
    wanted = torch.tensor(sorted({part for i in ids for part in parts.get(i, ())}), dtype=torch.int64)
    if len(wanted):
        sources = of_array(rows.take(wanted.numpy())).double()
        for k, i in enumerate(ids):
            if parts.get(i):
                made[k] = sources[torch.searchsorted(wanted, torch.tensor(parts[i]))].mean(0)
    return made + drawn


def alike(ids: Iterable[int], parts: Mapping[int, tuple[int, ...]]) -> set[int]:
    """The ids whose parts give no distinct row: no parts, a single token, or the same shares as another id's."""
    shares = {i: _shares(parts.get(i, ())) for i in ids}
    times = Counter(shares.values())
    return {i for i, of in shares.items() if len(of) < 2 or times[of] > 1}


def _shares(parts: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Each part with its share: (a, a, b, b) and (b, a) have the same mean."""
    times = Counter(parts)
    return tuple(sorted((part, n // math.gcd(*times.values())) for part, n in times.items()))


def _shrunk(rows: Rows, moments: Moments) -> tuple[Tensor, float]:
    """Ledoit & Wolf 2004, equations 5 to 14, with S divided by n: s = min(b, d) / d, where b is the error of S as an
    estimate and d its distance to the target."""
    n, d = rows.shape
    mean = of_array(moments.mean())
    if n < 2:
        return torch.zeros(d, d, dtype=torch.float64).fill_diagonal_(torch.finfo(torch.float64).tiny), 1.0
    s = of_array(moments.covariance()) * ((n - 1) / n)
    target, fourth = s.trace() / d, torch.zeros((), dtype=torch.float64)
    distance = (s - torch.eye(d, dtype=torch.float64) * target).square().sum()
    for block in blocks_of(rows, rows_at_once(d)):
        fourth += (block.double() - mean).square().sum(1).square().sum()
    error = ((fourth - n * s.square().sum()) / n**2).clamp(min=0).minimum(distance)
    shrinkage = max(float(error / distance), 1e-6) if float(distance) > 0 else 1.0
    shrunk = (1 - shrinkage) * s
    shrunk.diagonal().add_(shrinkage * target + torch.finfo(torch.float64).tiny)
    return shrunk, shrinkage


def sub_tokens(tokenizer: Any, ids: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """The parts of each token in `ids`, from the tokenizer without these tokens. Its model (BPE, WordPiece, Unigram)
    splits a token of the vocabulary; an added token is split as text. A single byte, an unknown character and an id
    without a token have no parts."""
    without = frozenset(ids)
    content = json.loads(tokenizer.to_str())
    added = {item["id"]: item["content"] for item in content.get("added_tokens") or ()}
    kind = content["model"].get("type")
    # for an added token, the library gives the normalised string
    pieces = {i: added.get(i) or tokenizer.id_to_token(i) for i in without}
    reduced = _without(content, without, {piece for piece in pieces.values() if piece is not None})
    unknown = _unknown(content["model"], tokenizer)
    split = dict[int, tuple[int, ...]]()
    for i, piece in sorted(pieces.items()):
        parts = [] if piece is None else _parts(reduced, kind, content["model"], piece, is_text=i in added)
        split[i] = tuple(part for part in parts if part not in without and part != unknown)
    return split


def _without(content: dict[str, Any], ids: frozenset[int], pieces: set[str]) -> Any:
    """The tokenizer that never produces `pieces`: they keep their ids under names that occur in no text."""
    model = dict(content["model"])
    hidden = {piece: f"\ue000uncone{number}\ue001" for number, piece in enumerate(sorted(pieces))}
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        model["vocab"] = {hidden.get(piece, piece): i for piece, i in vocabulary.items()}
    elif isinstance(vocabulary, list):
        model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in vocabulary]
    else:
        raise InputError("expected a tokenizer with a vocabulary, got none: use the method 'mean' or 'covariance'")
    if "merges" in model:
        prefix = model.get("continuing_subword_prefix") or ""
        pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [[a, b] for a, b in pairs if not {a, b, a + b.removeprefix(prefix)} & pieces]
        model["dropout"] = None
    added = [item for item in content.get("added_tokens") or () if item["id"] not in ids]
    reduced = content | dict.fromkeys(("post_processor", "truncation", "padding"))
    reduced |= {"model": model, "added_tokens": added}
    of_json = tokenizer_class()
    tokenizer, error = attempt(lambda: of_json.from_str(json.dumps(reduced)))
    if error is not None:
        got = f"got one that does not ({first_line(error)}): use the method 'mean' or 'covariance'"
        raise InputError(f"expected a tokenizer that works without the tokens that get new rows, {got}") from error
    return tokenizer


def _parts(reduced: Any, kind: str | None, model: Mapping[str, Any], piece: str, *, is_text: bool) -> list[int]:
    if model.get("byte_fallback") and re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return []  # a byte's token is not written as its name
    prefix = model.get("continuing_subword_prefix")
    if kind == "WordPiece" and prefix and piece.startswith(prefix) and not is_text:
        return _continuing(reduced, piece.removeprefix(prefix), prefix)
    if is_text or kind in ("WordPiece", "WordLevel"):  # these split only prepared text
        return list(reduced.encode(piece, add_special_tokens=False).ids)
    suffix = model.get("end_of_word_suffix") or ""
    parts = [token.id for token in reduced.model.tokenize(piece.removesuffix(suffix))]
    if parts and not piece.endswith(suffix):  # the model ended the word, which this piece does not
        last = reduced.token_to_id(str(reduced.id_to_token(parts[-1])).removesuffix(suffix))
        parts = parts[:-1] if last is None else [*parts[:-1], last]
    return parts


def _continuing(reduced: Any, rest: str, prefix: str) -> list[int]:
    """WordPiece inside a word: the longest piece first, each after the prefix; or no parts."""
    parts = list[int]()
    while rest:
        ids = ((stop, reduced.token_to_id(prefix + rest[:stop])) for stop in range(len(rest), 0, -1))
        stop, found = next((one for one in ids if one[1] is not None), (0, 0))
        if stop == 0:
            return []
        parts.append(found)
        rest = rest[stop:]
    return parts


def _unknown(model: Mapping[str, Any], tokenizer: Any) -> Any:
    if type(model.get("unk_id")) is int:
        return model["unk_id"]
    name = model.get("unk_token")
    return tokenizer.token_to_id(name) if isinstance(name, str) else None
