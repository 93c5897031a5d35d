"""Every public name of `uncone`, and of a question the record that answers it and its command.

It imports nothing: the package, the loader of records, the command line, documents and tests read it.
"""

QUESTIONS = {
    "diagnose": (
        "diagnosis.diagnose",
        "diagnosis.record.Diagnosis",
        "diagnose SPEC",
        "Say how degenerate a token table and an output head are, why, and what to do next.",
    ),
    "compare": (
        "comparison.compare",
        "comparison.record.Comparison",
        "compare BASELINE OTHER...",
        "Show which defects came or went between models or saved diagnoses, and what changed.",
    ),
    "check": (
        "comparison.bars.check",
        "comparison.bars.record.Check",
        "check DIAGNOSIS",
        "Hold a saved diagnosis against bars: exit status 2 beyond one.",
    ),
    "calibrate": (
        "calibration.calibrate",
        "calibration.record.Calibration",
        "calibrate VECTORS",
        "Say what a similarity score of these vectors means: how often random pairs reach it, and thresholds.",
    ),
    "evaluate": (
        "evaluation.evaluate",
        "evaluation.record.Evaluation",
        "evaluate [SPEC]",
        "Say what each repair does to a task: similarity, retrieval or quantised search.",
    ),
    "select_repair": ("evaluation.select_repair", "evaluation.record.Selection", "", ""),
    "repair": (
        "repairs.repair",
        "repairs.record.Repaired",
        "repair SPEC OUT",
        "Write a repaired copy of vectors or of an encoder, and say what that changed and what it cost.",
    ),
    "center_head": (
        "edits.center_head",
        "edits.record.HeadEdit",
        "center-head MODEL OUT",
        "Write a copy of a language model whose head has no mean row, and prove that no probability changed.",
    ),
    "repair_tokens": (
        "edits.repair_tokens",
        "edits.record.TokenEdit",
        "repair-tokens MODEL OUT",
        "Write a copy of a language model in which rows of tokens that no text has trained are set anew.",
    ),
    "count": (
        "tokens.count",
        "tokens.record.TokenFrequencies",
        "count MODEL TEXT...",
        "Count how often each token of a model occurs in texts, which --counts of every command takes.",
    ),
    "judge_curves": (
        "saturation.curves.judge_curves",
        "saturation.curves.record.CurveVerdicts",
        "saturation curves SOURCE",
        "Say which curves over the checkpoints of a training decline late.",
    ),
    "fit_scaling_law": (
        "saturation.law.fit_scaling_law",
        "saturation.law.record.ScalingLaw",
        "saturation law SOURCE",
        "Fit the loss of runs by parameters and tokens, and say how far each lies from the law.",
    ),
    "trace_checkpoints": (
        "saturation.checkpoints.trace_checkpoints",
        "saturation.checkpoints.record.CheckpointTrace",
        "saturation checkpoints DIRECTORIES...",
        "Say when spectra of heads and states turn, and whether before the loss.",
    ),
    "examine_head": (
        "saturation.head.examine_head",
        "saturation.head.record.HeadExamination",
        "saturation head MODEL TEXT",
        "Say what the rank of a model's head costs on a text.",
    ),
    "context_rank": (
        "saturation.contexts.context_rank",
        "saturation.contexts.record.ContextRank",
        "saturation contexts SOURCE",
        "Say how many dimensions the contexts of a text need, beside shuffled tokens.",
    ),
    "measures": (
        "diagnosis.measures",
        "records.measures.Measures",
        "measures [NAME]",
        "List all measures with range and direction, or describe one.",
    ),
}
"""The function: its file, record, command with what it is asked of, and the command's line in the list."""

GROUPS = {"saturation": "Say whether training stops to help, and what the rank of a head costs."}
"""Commands that hold commands."""

OBJECTS = {
    "AnisotropyTrack": "training.cloud",
    "Attached": "training.attach",
    "AttachedStates": "training.attach_states",
    "CrossEntropyOptions": "training.loss.options",
    "Finding": "records.parts",
    "GradientMonitor": "training.gradient_monitor",
    "InputError": "errors",
    "Measurement": "records.parts",
    "Moments": "moments",
    "OwnVectors": "evaluation.own_vectors",
    "PairSet": "evaluation.pairs",
    "PersistentEntropy": "training.persistent_entropy",
    "RareTokenGate": "training.gate",
    "Record": "records.record",
    "Rows": "rows",
    "States": "model.last_states",
    "StepWarning": "errors",
    "Subject": "diagnosis.record",
    "UnconeError": "errors",
    "UndefinedMeasure": "errors",
    "UnsupportedModel": "errors",
    "anisotropy_scores": "training.cloud",
    "attach": "training.attach",
    "attach_states": "training.attach_states",
    "barcode": "training.bars.barcode",
    "correlation": "evaluation.bootstrap",
    "correlation_bootstrap": "evaluation.bootstrap",
    "correlation_bootstraps": "evaluation.bootstrap",
    "drift": "calibration.drift",
    "encoded_texts": "evaluation.encoding",
    "fit_zipf": "tokens.zipf",
    "gated_linear_cross_entropy": "training.loss.loss",
    "gradient_ledger": "diagnosis.why.gradients.gradients",
    "linear_cross_entropy": "training.loss.loss",
    "load_record": "records.load",
    "margin_claim": "diagnosis.why.margins.margins",
    "open_rows": "model.open",
    "paired_bootstrap": "evaluation.bootstrap",
    "paired_bootstraps": "evaluation.bootstrap",
    "persistent_entropy": "training.bars.bars",
    "place_value": "diagnosis.known.known",
    "prominent_bars": "training.bars.bars",
    "prominent_counts": "training.bars.bars",
    "prominent_mask": "training.bars.bars",
    "rank_curve": "saturation.head.rank.rank_curve",
    "read_sts": "evaluation.pairs",
    "read_word_sets": "evaluation.pairs",
    "settable_tokens": "diagnosis.why.reach.settable",
    "token_frequencies": "tokens.token_frequencies",
    "uniformly_negative_direction": "diagnosis.why.direction.negative_direction",
    "unreachable_tokens": "diagnosis.why.reach.unreachable",
    "vocabulary_of": "evaluation.word_vocabulary",
    "word_similarity": "evaluation.wordsim",
}
"""Every other public object, and its file."""

ROOMS = ("measure", "model", "report", "rows", "transforms")  # folders whose own names are public too
