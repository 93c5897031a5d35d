"""Tokens as a user names them: by ids, by spans of ids, and by their strings."""

import re
from collections.abc import Callable, Iterable, Sequence

from uncone.errors import InputError, nearest
from uncone.records.token_text import token_texts

MOST_IDS = 100_000
HOW = "give ids or token strings such as 3,90-99,<|user|>, a file of them, zero or added"
_IDS = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*")
_SHOWN = 60
Labels = Sequence[str | None] | None


def are_ids(text: str) -> bool:
    return all(map(_IDS.fullmatch, text.split(",")))


class TokenNames:
    """The ids of tokens by name. `labels()` gives the token strings; it is called once a name is no id."""

    def __init__(self, labels: Callable[[], Labels]) -> None:
        self._labels, self._by_name = labels, dict[str, list[int]]()

    def in_list(self, text: str) -> list[int]:
        """The ids of names between commas. A comma in a token string is kept where the longer string is a token."""
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
        """The ids of a file's lines: ids and spans between spaces or commas, or one token string."""
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
            raise InputError(f"expected a token string of one id, got {name[:_SHOWN]!r} of ids {among}: give the id")
        return ids[0]

    def _known(self, name: str) -> list[int]:
        """The ids of a string, with the spaces around it or else without; of a spelling before those of a text."""
        if not self._by_name:
            labels, read = self._labels(), dict[str, list[int]]()
            if labels is None:
                raise InputError(
                    "expected ids of tokens, got a string, and the model has no tokenizer file that gives its token "
                    "strings: give ids such as 3,90-99"
                )
            for i, (label, text) in enumerate(zip(labels, token_texts(labels, range(len(labels))), strict=True)):
                if label and text:
                    self._by_name.setdefault(label, []).append(i)
                    read.setdefault(text, []).append(i)
            self._by_name = read | self._by_name
        return self._by_name.get(name) or self._by_name.get(name.strip()) or []
