"""`center_head`: a language model whose head has no mean row."""

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

    The mean row, in float64, is subtracted from every row, padded ones included, as they all enter the softmax. The
    result is rounded once to the stored dtype, and the bias stays. Then both models run on the same text and random
    ids. The proof holds on two conditions. The edited model's log-probabilities are as near to exact ones as the
    original's: within one and a half times its largest error and the rounding of its largest logit. And the same token
    comes first at every position, but for ties within rounding, which are counted.

    Args:
        model: a directory of transformers with a linear head, or the name of a cached one.
        out: a new directory. It appears whole or not at all.
        untie: where the head shares the table's rows, store it apart: V x D more numbers.
        text: a text in UTF-8 for the proof; None for a sample that is part of uncone, or random ids without a
            tokenizer.
        dtype: in which the proof runs ("float32", "bfloat16", "float16"); None for the model's own, but float32 where
            that is float64, as nothing wider would measure its rounding. What is stored keeps its dtype.
        progress: called with (step, done, of how many).

    Returns:
        `HeadEdit`: the proof's figures, the effect of rounding on the head before and after, warnings.

    Raises:
        InputError: no such model, `out` exists or cannot be written, rows that are not finite, a GGUF model.
        UnsupportedModel: a capped, quantised or non-linear head, an adapter; a tied head whose mean no table can take,
            without `untie`; a proof that fails. After an error nothing is written.
    """
    need_torch("uncone.center_head")
    from uncone.edits.head import centred_copy

    return centred_copy(model, out, untie=untie, text=text, dtype=dtype, progress=progress)
