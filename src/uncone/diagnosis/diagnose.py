"""`diagnose`: from a spec to the `Diagnosis`."""

from typing import Any, Literal

from uncone.diagnosis.advice import advice_for
from uncone.diagnosis.examination import Examination, examined
from uncone.diagnosis.known.known import placed_among_known
from uncone.diagnosis.record import Diagnosis
from uncone.diagnosis.tokens import role_of
from uncone.diagnosis.verdict import give_verdict
from uncone.diagnosis.why.by_text import MOST_TOKENS, begin
from uncone.engines.choose import working
from uncone.errors import InputError
from uncone.model.open import Subjects, open_subjects
from uncone.roles import Counts, EngineName, Progress, Several, Spec, Write, are_ranks
from uncone.version import versions


def diagnose(
    spec: Spec,
    *,
    text: Several = None,
    counts: Counts = None,
    neighbours: bool = False,
    skip_nonfinite: bool = False,
    skip_damaged: bool = False,
    allow_full: bool = False,
    workers: int | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
    tokens: int = MOST_TOKENS,
    reach: bool = False,
    resume: Write = None,
    device: str | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Show how degenerate the rows of `spec` are, why, and what to do next.

    Args:
        spec: a model directory (its token table and output head), or anything `open_rows` takes.
        text: files of text that show why: `.txt` or any other plain text, `.jsonl#field`, `.parquet#column`, also
            packed (.gz, .xz, .zst). uncone counts their tokens and runs the model over them (extra [hf]): see
            `Explanation`.
        counts: how often each token occurs in some text: a file (a table `id token count` or `token count`, or `.npy`),
            or a tensor or array (N,); or the word "ranks" where rows are in order of frequency, the most frequent first
            (a file of this name is ./ranks). Give the counts of the text that trained the model: a token that never
            occurs there counts as untrained. By default the tokens of `text` are counted; it may not be the
            training text, so its counts cannot show that a token is untrained. Without a text, tokens are ranked by their ids.
        neighbours: also run the measures of nearest neighbours (`two_nn`, `levina_bickel`, `hubness` and
            `uniformity_exact`), and find hubs and near-duplicates among vectors: about 1.5 N^2 D multiply-adds.
        skip_nonfinite: leave out rows with NaN or inf instead of refusing them.
        skip_damaged: leave out shards that cannot be read, after one pass over all; the notes count them.
        allow_full: if a server cannot send parts of a file, load the whole file into memory.
        workers: for shards (a glob, a folder, a Lance dataset) or the run over a text: how many processes on this
            machine, or units of Ray at a time; by default this process alone. Shards give the same answer to the last
            byte. A text gives the same answer with any number of workers, and each of them loads the model.
        engine: what reads shards or runs the model: "processes", or "ray" (extra [ray]).
        address: the address of a Ray cluster, such as "ray://head:10001"; by default a cluster is started on this machine.
        tokens: the most tokens of the text that the model is run over; all of the text is counted.
        reach: also search for tokens that the head can never predict, and for sets of tokens that can be set freely:
            minutes on two cores.
        resume: a file that keeps the sums over layers; after a stop, the same call continues from it.
        device: the device that runs the model, such as "cuda"; the CPU by default.
        dtype: the precision of the run, such as "bfloat16"; float32 by default.
        progress: called with (the step, rows done, rows in all); the last is 0 for a step without rows.

    Returns:
        A `Diagnosis`: the verdict, each matrix's measurements, findings and picture, and with a text its
        `explanation`.

    Raises:
        InputError: the source cannot be opened or holds rows that are not finite, counts do not fit it, or the text is
            empty, no UTF-8, or of a model without a tokenizer.
        UnsupportedModel: the table or the head cannot be found in the model's files.
    """
    limit = None if tokens == MOST_TOKENS else tokens
    of_text = {"resume": resume, "device": device, "dtype": dtype, "reach": reach or None, "tokens": limit}
    given = next((name for name, value in of_text.items() if value is not None), None)
    if text is None and given:
        raise InputError(f"expected --text with --{given}, got none: name a text to run the model on")
    if text is not None and are_ranks(counts):
        raise InputError("expected counts with --text, got ranks: leave --counts out to count the tokens of the text")
    if progress:
        progress("opening", 0, 0)
    of_source: dict[str, Any] = {
        "skip_nonfinite": skip_nonfinite,
        "skip_damaged": skip_damaged,
        "allow_full": allow_full,
    }
    with working(workers, engine, address) as worker:
        of_rows, of_run = (worker, None) if text is None else (None, worker)
        opened = open_subjects(spec, **of_source, engine=of_rows, progress=progress)
        run = {"resume": resume, "device": device, "dtype": dtype, "engine": of_run}
        return _diagnosed(opened, text, counts, neighbours, tokens, reach, run, progress)


def _diagnosed(
    opened: Subjects,
    text: Several,
    counts: Counts,
    neighbours: bool,
    tokens: int,
    reach: bool,
    run: dict[str, Any],
    progress: Progress | None,
) -> Diagnosis:
    reading, of_training = None, counts is not None
    if text is not None:
        reading = begin(opened.spec, text, counts=counts, tokens=tokens, reach=reach, progress=progress)
        counts = reading.counts
        reading.read_layers(**run)
    examinations = [
        Examination(
            name,
            rows,
            progress,
            role_of(name, rows, opened.rows),
            counts,
            neighbours=neighbours,
            logits=reading.logits if reading and name == "head" else None,
            advice=advice_for(opened.spec, name, opened.editable),
            capped=opened.cap is not None,
            of_training=of_training,
        )
        for name, rows in opened.rows
    ]
    subjects = examined(examinations)
    if reading:
        reading.read_head()
    subjects = placed_among_known(subjects)
    return Diagnosis(
        opened.name,
        give_verdict(subjects),
        subjects,
        notes=opened.notes,
        versions=versions("numpy", *(("torch", "transformers") if reading else ())),
        explanation=reading.explanation(subjects) if reading else None,
    )
