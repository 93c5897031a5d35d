"""`repair_tokens`: new rows for tokens that no text has trained."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from uncone.edits.record import TokenEdit
from uncone.errors import InputError, UndefinedMeasure, nearest, need_torch
from uncone.measure import under_trained_tokens
from uncone.measure.groups import special_rows
from uncone.measure.under_trained import known_unused
from uncone.model import open_language_model
from uncone.model.counts import read_counts
from uncone.model.files import read_json, small_file
from uncone.records.text import counted, plural
from uncone.records.token_text import token_texts
from uncone.regular import lines_of
from uncone.roles import Model, Out, Path_, Progress, Read, Role

MOST_IDS = 100_000
HOW = "give ids or token strings such as 3,90-99,<|user|>, a file of them, zero, added or unseen"
_IDS = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*")
_SHOWN, _SHOWN_IN_USE = 60, 8
Labels = Sequence[str | None] | None
_LONGEST_LINE = 2**20


def repair_tokens(
    model: Model,
    out: Out,
    *,
    tokens: Annotated[str | Sequence[int | str], Role.READ] = "auto",
    method: Literal["sub_tokens", "mean", "covariance"] = "sub_tokens",
    counts: Read = None,
    text: Read = None,
    progress: Progress | None = None,
) -> TokenEdit:
    """Write a copy of a language model with new rows for some tokens, and measure its loss.

    Args:
        model: a transformers directory, or the name of a cached model.
        out: a new directory.
        tokens: ids, spans such as 90-99 and token strings such as <|user|>, separated by commas; a file with one entry
            per line; "zero", "added"; "unseen", the tokens with count 0 in `counts` that are neither reserved nor
            special; or "auto", the tokens that `under_trained_tokens` finds. A string is spelled as the tokenizer
            spells it, or as text. In such a list digits are always an id. A sequence holds ids (int) and token strings
            (str).
        method: what new rows are made from, "sub_tokens", "mean" or "covariance".
        counts: with "auto" or "unseen", how often each token occurs in the text that trained the model, as for
            `diagnose`. "auto" treats tokens with count 0 as unused where few tokens are reserved by name.
        text: the text on which the loss is measured before and after.
        progress: called with (step, done, total).

    Raises:
        InputError: no such ids, token strings (the error names the nearest) or method; counts of other rows, or counts
            together with tokens that are named; "unseen" without counts; no token that looks untrained or is unseen;
            and whatever `reinitialise_tokens` raises.
    """
    need_torch("uncone.repair_tokens")
    from uncone.edits.tokens import reinitialise_tokens, way_named
    from uncone.model.directory import whole_model

    directory, way = whole_model(model), way_named(method)
    if counts is not None and tokens not in ("auto", "unseen"):
        search = "only with tokens auto or unseen"
        raise InputError(f"expected --counts (counts=) {search}, got other tokens: leave the counts out")
    if counts is None and tokens == "unseen":
        raise InputError("expected --counts (counts=) with unseen tokens, got none: give counts of the training text")
    ids: str | Sequence[int]
    notes: tuple[str, ...] = ()
    if tokens == "auto":
        ids, notes = _untrained(directory, counts)
    elif tokens == "unseen" and counts is not None:
        ids, notes = _unseen(directory, counts)
    elif tokens in ("zero", "added"):
        ids = str(tokens)
    else:
        ids = _ids(TokenNames(partial(_labels, directory)), tokens)
    edit = reinitialise_tokens(directory, out, ids, method=way, text=text, progress=progress)
    return replace(edit, notes=(*edit.notes, *notes))


def _untrained(directory: Path, counts: Path_ | None) -> tuple[list[int], tuple[str, ...]]:
    """The ids that look untrained and are not reserved by name; and notes on the counts."""
    model = open_language_model(directory)
    places = model.places()
    rows = model.rows(places.input if places.head is None or places.tied else places.head, with_tokens=True)
    n = rows.shape[0]
    seen = None if counts is None else read_counts(counts, n, rows.labels)
    prefer: Literal["cosine", "norm"] = "norm" if places.head is None else "cosine"
    try:
        report = under_trained_tokens(rows, prefer=prefer, counts=None if seen is None else seen.counts, most=n)
    except UndefinedMeasure as error:
        raise InputError(f"cannot find out which tokens of {directory} are untrained: {error}; {HOW}") from error
    found, used = [token.id for token in report.listed("found")], _used_by_a_chat(directory, rows.labels)
    ids = [i for i in found if i not in used]
    notes = () if seen is None else seen.notes
    if kept := [i for i in found if i in used]:
        named = ", ".join(map(repr, token_texts(rows.labels, kept[:_SHOWN_IN_USE])))
        notes += (
            f"{counted(len(kept), 'special token')} of the chat template or the end of a text also "
            f"{plural(len(kept), 'looks', 'look')} untrained and {plural(len(kept), 'keeps its row', 'keep their rows')}: "
            f"{named}. Name them with --tokens to replace them.",
        )
    if not ids:
        why = report.reason or (notes[-1] if found else "no token stands out at a false-discovery rate of 1%")
        raise InputError(
            f"expected a token that looks untrained, got none ({why}): leave the rows as they are, or {HOW}"
        )
    return ids, notes


def _used_by_a_chat(directory: Path, labels: Labels) -> set[int]:
    """The special tokens in the chat template, and the tokens that begin and end a text or fill it up."""
    used, templates = set[int](), list[Any]()
    if (file := directory / "chat_template.jinja").is_file():
        templates.append(small_file(file).decode("utf-8", "replace"))
    if (file := directory / "tokenizer_config.json").is_file():
        given = read_json(file, dict).get("chat_template")
        templates += given if isinstance(given, list) else [given]
    for name in ("config.json", "generation_config.json"):
        config = read_json(directory / name, dict) if (directory / name).is_file() else {}
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            value = config.get(key)
            used.update(i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int))
    text = "\n".join(map(str, templates))
    return used | {i for i in special_rows(labels or ()) if str((labels or ())[i]) in text}


def _unseen(directory: Path, counts: Path_) -> tuple[list[int], tuple[str, ...]]:
    """The ids with count 0 that have a token and are neither reserved nor special; and notes on the counts."""
    model = open_language_model(directory)
    rows = model.rows(model.places().input, with_tokens=True)
    seen, labels = read_counts(counts, n := rows.shape[0], rows.labels), rows.labels or [""] * rows.shape[0]
    left = known_unused(labels, n)[0]
    left[special_rows(labels)] = True
    ids = [i for i, often in enumerate(seen.counts.tolist()) if not (often or left[i])]
    if not ids:
        raise InputError(
            f"expected a token that never occurs in {Path(counts).name}, got none: leave the rows as they are, or {HOW}"
        )
    return ids, seen.notes


def _labels(directory: Path) -> Labels:
    model = open_language_model(directory)
    return model.rows(model.places().input, with_tokens=True).labels


def are_ids(text: str) -> bool:
    return all(map(_IDS.fullmatch, text.split(",")))


class TokenNames:
    """The ids of tokens by name. `labels()` gives the token strings; it is called as soon as a name is not an id."""

    def __init__(self, labels: Callable[[], Labels]) -> None:
        self._labels, self._by_name = labels, dict[str, list[int]]()

    def in_list(self, text: str) -> list[int]:
        """Names between commas. A comma in a token string is kept where the longer string is a token."""
        fields, ids, at = text.split(","), list[int](), 0
        while at < len(fields):
            end = at + 1
            if not _IDS.fullmatch(fields[at]):
                longer = range(len(fields), at + 1, -1)
                end = next((to for to in longer if self._known(",".join(fields[at:to]))), end)
            ids += self.of(",".join(fields[at:end]), MOST_IDS - len(ids))
            at = end
        return ids

    def in_lines(self, lines: Iterable[str]) -> list[int]:
        """A line holds ids and spans between spaces or commas, or one token string."""
        ids = list[int]()
        for line in filter(str.strip, lines):
            numbers = line.replace(",", " ").split()
            for name in numbers if all(map(_IDS.fullmatch, numbers)) else [line]:
                ids += self.of(name, MOST_IDS - len(ids))
        return ids

    def of(self, name: str, most: int = MOST_IDS) -> list[int]:
        """The ids of an id, of a span, or of a token string; digits are always an id."""
        if not (span := _IDS.fullmatch(name)):
            return [self.of_string(name)]
        first, last = int(span[1]), int(span[2] or span[1])
        if not first <= last < first + most:
            raise InputError(f"expected ids of tokens, at most {MOST_IDS:,}, got {name[:_SHOWN]!r}: {HOW}")
        return list(range(first, last + 1))

    def of_string(self, name: str) -> int:
        ids = self._known(name)
        if not ids:
            like = nearest(name, self._by_name, HOW)
            raise InputError(f"expected ids or token strings of the model, got {name[:_SHOWN]!r}: {like}")
        if len(ids) > 1:
            among = ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")
            raise InputError(
                f"expected a token string with one id, got {name[:_SHOWN]!r} with ids {among}: give the id"
            )
        return ids[0]

    def _known(self, name: str) -> list[int]:
        """The ids of a name with its surrounding spaces, or else without them; a tokenizer's spelling goes first."""
        if not self._by_name:
            labels, read = self._labels(), dict[str, list[int]]()
            if labels is None:
                got = "got a string, and the model has no tokenizer file that gives its token strings"
                raise InputError(f"expected ids of tokens, {got}: give ids such as 3,90-99")
            for i, (label, text) in enumerate(zip(labels, token_texts(labels, range(len(labels))), strict=True)):
                if label and text:
                    self._by_name.setdefault(label, []).append(i)
                    read.setdefault(text, []).append(i)
            self._by_name = read | self._by_name
        return self._by_name.get(name) or self._by_name.get(name.strip()) or []


def _ids(names: TokenNames, given: str | Sequence[int | str]) -> list[int]:
    if not isinstance(given, str):
        return [names.of_string(name) if isinstance(name, str) else name for name in given]
    if are_ids(given) or not os.path.isfile(given):
        return names.in_list(given)
    return names.in_lines(line for _, line in lines_of(given, how=HOW, longest=_LONGEST_LINE))
