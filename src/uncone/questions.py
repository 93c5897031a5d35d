"""Every public name of `uncone`, and for each question its command and the record that answers it.

It imports nothing: the package, the loader of records, the command line, documents and tests read it.
"""

# A line for each question: its function, the folder that holds it in a file of that name, the record in the folder's
# record.py, the command with its arguments, and the command's line in the list
_QUESTIONS = """
diagnose                | diagnosis                 | Diagnosis                 | diagnose SPEC                         | Show how degenerate a token table and an output head are, why, and what to do next.
compare                 | comparison                | Comparison                | compare BASELINE OTHER...             | Show which defects came or went between models or saved diagnoses, and what changed.
check                   | comparison.bars           | Check                     | check RECORD                          | Check a saved diagnosis or evaluation against bars: exit status 2 beyond a bar.
calibrate               | calibration               | Calibration               | calibrate VECTORS                     | Show what a similarity score of these vectors means: how often random pairs reach it, and thresholds.
evaluate                | evaluation                | Evaluation                | evaluate [SPEC]                       | Show what each repair does to a task: similarity, retrieval or quantised search.
evaluate_language_model | evaluation.language_model | LanguageModelEvaluation   |                                       |
select_repair           | evaluation                | Selection                 |                                       |
repair                  | repairs                   | Repaired                  | repair SPEC OUT                       | Write a repaired copy of vectors or of an encoder, and show what that changed and what it cost.
center_head             | edits                     | HeadEdit                  | center-head MODEL OUT                 | Write a copy of a language model whose head has no mean row, and prove that no probability changed.
repair_tokens           | edits                     | TokenEdit                 | repair-tokens MODEL OUT               | Write a copy of a language model with new rows for tokens that no text has trained.
count                   | tokens                    | TokenFrequencies          | count MODEL TEXT...                   | Count how often each token of a model occurs in texts, for the option --counts of every command.
judge_curves            | saturation.curves         | CurveVerdicts             | saturation curves SOURCE              | Show which metrics get worse late in a training run.
fit_scaling_law         | saturation.law            | ScalingLaw                | saturation law SOURCE                 | Fit the loss of runs by parameters and tokens, and show how far each run is from the law.
trace_checkpoints       | saturation.checkpoints    | CheckpointTrace           | saturation checkpoints DIRECTORIES... | Show when the spectra of heads and states turn, and whether before the loss.
examine_head            | saturation.head           | HeadExamination           | saturation head MODEL TEXT            | Show what the rank of a model's head costs on a text.
context_rank            | saturation.contexts       | ContextRank               | saturation contexts SOURCE            | Show how many dimensions the contexts of a text need, compared with shuffled tokens.
watch                   | watching                  | Watch                     | watch RUN...                          | Show what a training run's geometry and loss do, and which rules warned.
measures                | diagnosis                 | records.measures.Measures | measures [NAME]                       | List all measures with range and direction, or describe one.
"""


def _question(line: str) -> tuple[str, tuple[str, str, str, str]]:
    name, folder, record, command, told = (cell.strip() for cell in line.split("|"))
    return name, (f"{folder}.{name}", record if "." in record else f"{folder}.record.{record}", command, told)


QUESTIONS = dict(map(_question, _QUESTIONS.strip().splitlines()))
"""By function: its file, its record, its command with the arguments, and the command's line in the list."""

GROUPS = {"saturation": "Show whether training has stopped helping, and what a smaller head would cost."}
"""Commands that hold commands."""

_FILES = {
    "calibration.drift": "drift",
    "diagnosis.known.known": "place_value",
    "diagnosis.record": "Subject",
    "diagnosis.why.direction.negative_direction": "uniformly_negative_direction",
    "diagnosis.why.gradients.gradients": "gradient_ledger",
    "diagnosis.why.margins.margins": "margin_claim",
    "diagnosis.why.reach.settable": "settable_tokens",
    "diagnosis.why.reach.unreachable": "unreachable_tokens",
    "errors": "InputError StepWarning UnconeError UndefinedMeasure UnsupportedModel",
    "evaluation.bootstrap": "correlation correlation_bootstrap correlation_bootstraps "
    "paired_bootstrap paired_bootstraps",
    "evaluation.encoding": "encoded_texts",
    "evaluation.own_vectors": "OwnVectors",
    "evaluation.pairs": "PairSet read_sts read_word_sets",
    "evaluation.word_vocabulary": "vocabulary_of",
    "evaluation.wordsim": "word_similarity",
    "model.last_states": "States",
    "model.open": "open_rows",
    "moments": "Moments",
    "records.load": "load_record",
    "records.parts": "Finding Measurement",
    "records.record": "Record",
    "rows": "Rows",
    "saturation.head.rank.rank_curve": "rank_curve",
    "tokens.token_frequencies": "token_frequencies",
    "tokens.zipf": "fit_zipf",
    "training.attach": "Attached attach",
    "training.attach_states": "AttachedStates attach_states",
    "training.bars.barcode": "barcode",
    "training.bars.bars": "persistent_entropy prominent_bars prominent_counts prominent_mask",
    "training.cloud": "anisotropy_scores",
    "training.gate": "RareTokenGate",
    "training.lightning": "lightning_callback",
    "training.loss.loss": "gated_linear_cross_entropy linear_cross_entropy",
    "training.loss.options": "CrossEntropyOptions",
    "training.loss.stats": "CrossEntropyStats",
    "training.monitor.evaluator": "GeometryEvaluator",
    "training.monitor.monitor": "Monitor",
    "training.optimisers.center_rows": "CenterRows",
    "training.optimisers.groups": "JoinedOptimizer table_parameters with_table_adam",
    "training.optimisers.kappa": "KappaTable kappa_by_frequency",
    "training.optimisers.table_adam": "TableAdam",
    "training.penalties.cosine": "CosinePenalty",
    "training.penalties.isoscore": "IsoScorePenalty",
    "training.penalties.orthogonal": "OrthogonalPenalty",
    "training.penalties.persistent_entropy": "PersistentEntropy",
}
OBJECTS = dict(sorted((name, file) for file, names in _FILES.items() for name in names.split()))
"""Every other public object, and its file."""

ROOMS = ("measure", "model", "report", "rows", "transforms")  # their own names are public too
