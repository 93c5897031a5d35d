"""The words of a word-vector file as labels."""


def decoded(word: bytes) -> str:
    """A word as text: bytes that are no UTF-8 become U+FFFD, since a label must never cost the rows."""
    return word.decode("utf-8", "replace")
