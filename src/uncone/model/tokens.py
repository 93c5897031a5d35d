"""Token strings for the rows of a table. A broken tokenizer costs the labels, never the diagnosis."""

import json
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from uncone.errors import first_line
from uncone.model.hugging_face import LARGEST_TOKENIZER
from uncone.regular import open_regular


@dataclass(frozen=True)
class TokenLabels:
    """What the rows stand for, or why that is not known."""

    labels: list[str | None] | None
    """One string a row, as the tokenizer spells it; None for a row without a token; None as a whole where
    nothing is known."""
    note: str | None = None
    """Why there are no labels, or why a tokenizer file was passed over."""


def token_labels(path: Path, n: int) -> TokenLabels:
    """The token strings of ids 0 to n - 1, from the tokenizer files in the directory `path`.

    tokenizer.json is read first, then vocab.txt (one token a line), then vocab.json; ids of n and beyond are
    left out. Never raises for what lies in the directory: `note` says what was wrong.
    """
    notes: list[str] = []
    for name, read in (
        ("tokenizer.json", _from_tokenizer),
        ("vocab.txt", _from_lines),
        ("vocab.json", _from_json),
    ):
        file = path / name
        if not file.is_file():
            continue
        try:
            _check_size(file)
            return TokenLabels(_placed(read(file), n), "; ".join(notes) or None)
        except (KeyboardInterrupt, SystemExit):
            raise
        except (
            BaseException
        ) as error:  # a panic in Rust arrives as pyo3's PanicException, which is no Exception
            notes.append(f"{file} gives no tokens ({first_line(error)})")
    return TokenLabels(None, "; ".join(notes) or f"no tokenizer.json, vocab.txt or vocab.json in {path}")


def _placed(ids: dict[str, int], n: int) -> list[str | None]:
    labels: list[str | None] = [None] * n
    for token, index in ids.items():
        if type(index) is int and 0 <= index < n:
            labels[index] = token.encode("utf-8", "replace").decode(
                "utf-8"
            )  # JSON can spell half a surrogate pair
    return labels


def _check_size(file: Path) -> None:
    size = file.stat().st_size
    if size > LARGEST_TOKENIZER:
        raise ValueError(f"expected at most {LARGEST_TOKENIZER} bytes, got {size}")


def _from_tokenizer(file: Path) -> dict[str, int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    # Where two tokens claim one id the last one stays: an added one, as in decoding. The order of get_vocab is random.
    return dict(sorted(ids.items(), key=lambda item: (item[0] in added, item[0])))


def _from_lines(file: Path) -> dict[str, int]:
    with TextIOWrapper(
        open_regular(file), encoding="utf-8"
    ) as lines:  # as BERT's own reader: universal newlines, nothing else is stripped
        return {line.rstrip("\n"): index for index, line in enumerate(lines)}


def _from_json(file: Path) -> dict[str, int]:
    vocabulary = _json_object(file)
    added = file.with_name("added_tokens.json")
    return vocabulary | _json_object(added) if added.is_file() else vocabulary


def _json_object(file: Path) -> dict[str, int]:
    _check_size(file)
    with open_regular(file) as content:
        value = json.load(content)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object from tokens to ids, got {type(value).__name__}")
    return value
