"""An edit of a language model in a terminal: what was changed, the proof, and what it is good for."""

from typing import TYPE_CHECKING

from uncone.records import HeadEdit, HeadRows, TokenEdit
from uncone.records.text import count, number, shortened
from uncone.records.wording import counted, listing
from uncone.report.printer import Printer

if TYPE_CHECKING:
    from rich.console import Console

_KINDS = {
    "int8_tensor": "int8, one scale",
    "int8_rows": "int8, one scale a row",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "logits_bfloat16": "logits in bfloat16",
}
_WAYS = {
    "sub_tokens": "the mean of its sub-tokens",
    "mean": "the mean of all trained rows",
    "covariance": "a draw around the mean",
}
_SHOWN = 10


def print_head_edit(edit: HeadEdit, console: "Console | None" = None) -> None:
    """Print the edit to `console`, by default the standard output."""
    out = Printer(console)
    p = edit.proof
    out.line(f"The head of {edit.name} is centred: {_agreement(edit)}.", "bold")
    out.line(f"{edit.head}: {count(edit.n)} x {count(edit.d)}, {edit.dtype}. {_way(edit)}", "dim")
    out.line(f"{counted(edit.unchanged, 'other tensor')} compared, all the same to the bit.", "dim")
    out.gap()
    out.table(
        ("log-probabilities, in nats", "value"),
        ("value",),
        [
            ("largest error of the original", number(p.rounding)),
            ("largest error of the edited model", number(p.rounding_edited)),
            ("allowed to it", number(p.allowed)),
            ("largest difference between the two", number(p.difference)),
        ],
    )
    out.line(f"on {count(p.positions)} positions of {p.text}, in {p.dtype}; exact is {p.reference}", "dim")
    out.gap()
    _both_sides(
        out, "error of logits when rounded", [(_KINDS[e.kind], e.before, e.after) for e in edit.effects]
    )
    out.line("root mean square, as a share of the logits' deviation over the vocabulary", "dim")
    out.gap()
    _both_sides(out, "rows of the head", _rows_of(edit.before, edit.after))
    out.gap()
    out.line(edit.statement)
    _remarks(out, edit.warnings, edit.notes, edit.left_out)


def print_token_edit(edit: TokenEdit, console: "Console | None" = None) -> None:
    """Print the edit to `console`, by default the standard output."""
    out = Printer(console)
    out.line(
        f"{counted(edit.edited, 'token')} of {edit.name} set anew; every other row is the same to the bit.",
        "bold",
    )
    out.line(f"{counted(edit.unchanged, 'other tensor')} compared, all the same to the bit.", "dim")
    out.gap()
    rows = [
        (
            shortened(tensor.name), tensor.role, count(tensor.rows_equal),
            "not finite" if tensor.mean_norm_before is None else number(tensor.mean_norm_before),
            number(tensor.mean_norm_after), number(tensor.mean_norm_others),
        )
        for tensor in edit.tensors
    ]  # fmt: skip
    columns = ("matrix", "role", "rows kept", "norm before", "norm after", "norm, trained")
    out.table(columns, columns[2:], rows, {"norm after": "bold"})
    out.gap()
    shown = [
        (str(token.id), shortened(token.token or ""), _WAYS[token.way], _ids(token.sub_tokens))
        for token in edit.tokens[:_SHOWN]
    ]
    out.table(("id", "token", "set to", "sub-tokens"), ("id",), shown)
    if edit.edited > len(shown):
        out.line(f"and {count(edit.edited - len(shown))} more", "dim")
    out.gap()
    if edit.loss is not None:
        loss = edit.loss
        out.line(
            f"Mean loss on {loss.text}: {number(loss.before)} nats before, {number(loss.after)} after, over {counted(loss.targets, 'target')} "
            f"({count(loss.with_edited)} of them edited tokens)."
        )
    elif edit.no_loss:
        out.line(f"No loss: {edit.no_loss}")
    _remarks(out, (), edit.notes, edit.left_out)


def _both_sides(out: Printer, what: str, values: list[tuple[str, float, float]]) -> None:
    rows = [(name, number(before), number(after)) for name, before, after in values]
    out.table((what, "before", "after"), ("before", "after"), rows, {"after": "bold"})


def _rows_of(before: HeadRows, after: HeadRows) -> list[tuple[str, float, float]]:
    found = [
        ("mean norm", before.mean_norm, after.mean_norm),
        ("norm of the mean row", before.norm_of_mean, after.norm_of_mean),
        ("largest number", before.largest, after.largest),
    ]
    if before.mean_cosine is not None and after.mean_cosine is not None:
        found.append(("mean cosine of two rows", before.mean_cosine, after.mean_cosine))
    return found


def _agreement(edit: HeadEdit) -> str:
    p = edit.proof
    ties = f", but for {counted(p.ties, 'tie')} within rounding" if p.ties else ""
    return (
        f"on {count(p.positions)} positions its log-probabilities are within {number(p.rounding_edited)} nats of exact ones, the original's within "
        f"{number(p.rounding)}, and the same token comes first everywhere{ties}"
    )


def _way(edit: HeadEdit) -> str:
    if edit.way == "folded":
        return f"Its rows are the token table's; the mean went into {listing(edit.folded_into)}."
    if edit.way == "parted":
        return (
            f"It shared the token table's rows and stands apart now: {listing(edit.added)}."
            if edit.added
            else "It stands apart now."
        )
    return "It is a matrix of its own."


def _remarks(
    out: Printer, warnings: tuple[str, ...], notes: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    for warning in warnings:
        out.line(f"Warning: {warning}", "yellow")
    for note in notes:
        out.bullet(note)
    if left_out:
        out.bullet(f"Not copied: {listing(left_out)}.")


def _ids(ids: tuple[int, ...]) -> str:
    return " ".join(map(str, ids))
