"""Sentences that more than one way of looking ends in."""


def no_head(architecture: str) -> str:
    """Why there is no head, for a class that has none."""
    if architecture.endswith("Model"):
        return f"{architecture} has no output head: this checkpoint holds the model without one"
    return f"{architecture} has no output head over the vocabulary"


def first_line(error: BaseException) -> str:
    """What another library's error says, cut to fit into a sentence of ours."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
