"""`center_head`: subtract the mean row from a language model's head."""

from uncone.edits.record import HeadEdit
from uncone.errors import need_torch
from uncone.roles import Model, Out, Progress, Read


def center_head(
    model: Model,
    out: Out,
    *,
    untie: bool = False,
    text: Read = None,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> HeadEdit:
    """Write a copy of a language model whose head's rows have mean zero, proven to change no probability.

    The mean row is subtracted in float64 from every row, including padding rows, because all rows enter the softmax.
    The result is rounded once to the stored dtype, and the bias stays. Then both models run on the same text and random
    ids. The proof has two conditions. First, the edited model's log-probabilities are as near to exact ones as the
    original's: within one and a half times its largest error plus the rounding of its largest logit. Second, the same
    token comes first at every position, except for ties within rounding, which are counted.

    Args:
        model: a transformers directory whose model has a linear head, or the name of a cached model.
        out: a new directory. It appears whole or not at all.
        untie: where the head shares the table's rows, store it separately: V x D more numbers.
        text: a UTF-8 text for the proof; None for the sample that comes with uncone, or for random ids where there is
            no tokenizer.
        dtype: the dtype of the proof ("float32", "bfloat16", "float16"); None for the model's own dtype, or float32
            where that is float64, because nothing wider could measure its rounding. Stored tensors keep their dtype.
        progress: called with (step, done, total).

    Returns:
        `HeadEdit`: the proof's figures, the effect of rounding on the head before and after, warnings.

    Raises:
        InputError: no such model, `out` exists or cannot be written, rows that are not finite, a GGUF model.
        UnsupportedModel: a capped, quantised or non-linear head, an adapter; without `untie`, a tied head whose mean no
            table can take; a proof that fails. After an error nothing is written.
    """
    need_torch("uncone.center_head")
    from uncone.edits.head import centred_copy

    return centred_copy(model, out, untie=untie, text=text, dtype=dtype, progress=progress)
