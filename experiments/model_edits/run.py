"""Centre the heads of many architectures in float32 and bfloat16, and of the real stories260K; print what the proofs measured.

    python experiments/model_edits/run.py [--model DIR] [--text FILE]

The small models have random weights and a planted drift: one vector of length about 1.7 added to all rows of the head, whose rows have
a length of about 0.34. They show that the edit is exact for the architecture, and not how much a trained model gains. Real ones are given with --model
(by default stories260K, where experiments/stories260k/convert.py has made it). The table goes to results/head.md beside this file.
"""

import argparse
import math
import platform
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

from uncone import UnconeError, __version__
from uncone.edits.center_head import center_head
from uncone.edits.proof import proof_text, run
from uncone.edits.record import HeadEdit
from uncone.model.directory import open_directory
from uncone.model.model_class import load_model

HERE = Path(__file__).parent
STORIES = HERE.parents[1] / "build/stories260K"
V, D = 97, 32
_LAYERS = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "hidden_size": D,
}
_GPT = {"n_embd": D, "n_layer": 2, "n_head": 4, "n_positions": 64}
_BART = {
    "d_model": D,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
}
CASES: tuple[tuple[str, str, dict[str, Any], bool], ...] = (
    ("GPT-2, tied", "GPT2LMHeadModel", _GPT, False),
    ("GPT-2, untied", "GPT2LMHeadModel", _GPT | {"tie_word_embeddings": False}, False),
    ("Llama, untied", "LlamaForCausalLM", _LAYERS, False),
    ("Llama, tied", "LlamaForCausalLM", _LAYERS | {"tie_word_embeddings": True}, False),
    ("Llama, tied, --untie", "LlamaForCausalLM", _LAYERS | {"tie_word_embeddings": True}, True),
    ("GPT-NeoX", "GPTNeoXForCausalLM", _LAYERS, False),
    ("OPT", "OPTForCausalLM", _LAYERS | {"ffn_dim": 64, "word_embed_proj_dim": D}, False),
    ("BERT with LM head", "BertForMaskedLM", _LAYERS, False),
    ("RoBERTa", "RobertaForMaskedLM", _LAYERS | {"pad_token_id": 1}, False),
    ("BART", "BartForConditionalGeneration", _BART, False),
    ("Cohere, --untie", "CohereForCausalLM", _LAYERS, True),
    ("Gemma-2", "Gemma2ForCausalLM", _LAYERS | {"num_key_value_heads": 2, "head_dim": 8}, False),
)
KINDS = {
    "int8_tensor": "int8, one scale",
    "int8_rows": "int8 a row",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "logits_bfloat16": "bf16 logits",
}


def planted(name: str, settings: dict[str, Any], dtype: torch.dtype) -> Any:
    """A model of random weights whose head drifts."""
    model_class = getattr(transformers, name)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**({"vocab_size": V} | special | settings)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 3 if parameter.ndim > 1 else 1
        model.get_output_embeddings().weight += 0.3 * torch.randn(D)
    return model.to(dtype)


def edits(models: list[Path], text: Path | None) -> Iterator[tuple[str, str, HeadEdit | str, float]]:
    """(model, dtype, the record or why there is none, the rounding of the whole model)."""
    for label, name, settings, untie in CASES:
        for dtype in (torch.float32, torch.bfloat16):
            with tempfile.TemporaryDirectory() as folder:
                source, kind = Path(folder) / "m", str(dtype).removeprefix("torch.")
                planted(name, settings, dtype).save_pretrained(source)
                edit = _edit(Path(folder), source, untie, None, None)
                yield (label, kind, edit, math.nan if isinstance(edit, str) else whole_rounding(source, kind, None))
    for path in models:
        for kind in ("float32", "bfloat16", "float16"):
            with tempfile.TemporaryDirectory() as folder:
                edit = _edit(Path(folder), path, True, text, kind)
                yield f"{path.name}, --untie", kind, edit, whole_rounding(path, kind, text)


def _edit(folder: Path, source: Path, untie: bool, text: Path | None, dtype: str | None) -> HeadEdit | str:
    try:
        return center_head(source, folder / "o", untie=untie, text=text, dtype=dtype)
    except UnconeError as error:
        return str(error).split(":")[0].split(" (")[0]


def whole_rounding(source: Path, kind: str, text: Path | None) -> float:
    """The largest error of a log-probability of the model in `kind`, against all of it in float64, on the ids of the proof."""
    files = open_directory(source)
    narrow, wide = (load_model(files, dtype=getattr(torch, name)) for name in (kind, "float64"))
    ids = proof_text(files, wide, wide.get_input_embeddings().num_embeddings, text)
    a, b = (run(model, ids).logits.double().log_softmax(-1) for model in (narrow, wide))
    return float((a - b).abs().max())


def tables(found: list[tuple[str, str, HeadEdit | str, float]]) -> str:
    """Markdown: the proofs, and what rounding the head does before and after."""
    proofs = [
        "| model | dtype | way | original's error | edited's error | ratio | allowed | difference | ties of positions |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    wholes = ["| model | dtype | difference | rounding of the whole model | ratio |", "|---|---|---|---|---|"]
    effects = [
        f"| model | dtype | {' | '.join(KINDS.values())} | mean cosine |",
        "|---|---" + "|---" * (len(KINDS) + 1) + "|",
    ]
    for label, dtype, edit, whole in found:
        if isinstance(edit, str):
            proofs.append(f"| {label} | {dtype} | refused: {edit} | | | | | | |")
            continue
        p, into = edit.proof, f" into {', '.join(edit.folded_into)}" if edit.folded_into else ""
        proofs.append(
            f"| {label} | {dtype} | {edit.way}{into} | {p.rounding:.2g} | {p.rounding_edited:.2g} | {p.rounding_edited / p.rounding:.2f} | {p.allowed:.2g} "
            f"| {p.difference:.2g} | {p.ties} of {p.positions} |"
        )
        wholes.append(f"| {label} | {dtype} | {p.difference:.2g} | {whole:.2g} | {p.difference / whole:.2f} |")
        errors = {str(e.kind): f"{e.before:.2g} -> {e.after:.2g}" for e in edit.effects}
        cosine = f"{edit.before.mean_cosine:.3f} -> {edit.after.mean_cosine:.3f}"
        effects.append(f"| {label} | {dtype} | {' | '.join(errors.get(kind, '') for kind in KINDS)} | {cosine} |")
    return "\n".join(
        [
            "# Centred heads",
            "",
            f"`python experiments/model_edits/run.py`, uncone {__version__}, torch {torch.__version__}, transformers {transformers.__version__}, "
            f"Python {platform.python_version()}, CPU.",
            "",
            "## Proofs",
            "",
            "Nats. *Error*: the largest of a log-probability, of either model against the original without its rounding. The edited model may err by 1.5 "
            "times the original's error and what it takes to write a logit: *allowed*. *Difference*: the largest between the two.",
            "",
            *proofs,
            "",
            "The same difference beside the rounding of the whole original in that dtype: its largest error against itself in float64.",
            "",
            *wholes,
            "",
            "## Rounding, before -> after",
            "",
            "The error of the logits' differences, root mean square as a share of their standard deviation. The small models have a planted drift; only "
            "the last rows are of a trained model.",
            "",
            *effects,
            "",
        ]
    )


def main() -> None:
    """Run, print, and keep the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, action="append", default=[STORIES] if STORIES.exists() else [])
    parser.add_argument(
        "--text", type=Path, help="for the real models; a sample that is part of uncone where there is none"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    text = tables(list(edits(given.model, given.text)))
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "head.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
