"""Translate the test sets with trained cells, and measure translations, losses and the shared table.

    python experiments/translation/mt_measure.py multi30k.toml --data FOLDER [--cells NAME...]
    python experiments/translation/mt_measure.py multi30k.toml --data FOLDER --scores    # of kept translations alone

What is measured goes into the cell's own result file, the translations beside it. A cell whose model is no longer in
the work folder is trained anew first.
"""

import json
import lzma
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1] / "rare_tokens"))
from bitext import SOURCE, TARGET, Bitext, padded, words
from mt_fill import cells
from mt_train import Cell, opened, parser, states_of, train
from sacrebleu.metrics import BLEU, CHRF

from measure import by_document, geometry
from uncone.atomic import write_bytes, write_text
from uncone.errors import InputError
from uncone.evaluation.language_model.scores import by_ids, score


@torch.inference_mode()
def translated(model: Any, text: Bitext, lines: list[str], of: dict[str, Any], length: int) -> list[str]:
    """By beam search; sentences of about one length are searched together."""
    ids = [[*one.ids, text.end] for one in text.tokenizer.encode_batch(lines)]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found = [""] * len(ids)
    for at in range(0, len(ids), 64):
        batch = padded([ids[i] for i in order[at : at + 64]], text.pad).to(model.device)
        search = {"num_beams": of["beams"], "length_penalty": of["length_penalty"], "do_sample": False}
        out = model.generate(batch, attention_mask=(batch != text.pad).long(), max_length=length, **search)
        for i, said in zip(order[at : at + 64], text.tokenizer.decode_batch(out.tolist()), strict=True):
            found[i] = " ".join(said.split())
    return found


def by_sentence(translations: list[str], references: list[str], counts: Counter[str], most: int) -> list[list[int]]:
    """Of each sentence: its n-grams of 1 to 4 that match, and all; both lengths (sums of these give BLEU); the
    reference's rare words, and those of them that the translation has."""
    bleu, found = BLEU(effective_order=True), []
    for said, reference in zip(translations, references, strict=True):
        of: Any = bleu.sentence_score(said, [reference])
        rare = Counter(word for word in words(reference) if counts[word] <= most)
        seen = rare & Counter(words(said))
        found.append([*of.counts, *of.totals, of.sys_len, of.ref_len, rare.total(), seen.total()])
    return found


def scores(name: str, translations: list[str], references: list[str], rare: list[int] | None = None) -> dict[str, Any]:
    """By sacrebleu, of all sentences or of those whose numbers are given."""
    at = range(len(references)) if rare is None else rare
    said, those = [translations[i] for i in at], [[references[i] for i in at]]
    found: dict[str, Any] = {"name": name, "sentences": len(at)}
    for key, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        if found["sentences"]:
            found |= {key: metric.corpus_score(said, those).score, f"{key}_signature": str(metric.get_signature())}
    return found


def of_translations(translations: list[str], text: Bitext, of: dict[str, Any]) -> dict[str, Any]:
    """InputError where there are not as many as references."""
    each = {name: text.lines(name, TARGET) for name in of["test"]}
    references = [line for lines in each.values() for line in lines]
    if len(translations) != len(references):
        raise InputError(f"expected {len(references)} translations, got {len(translations)}: measure the cell again")
    sentences, made, at = by_sentence(translations, references, text.word_counts(), of["rare_words"]), [], 0
    for name, lines in each.items():
        made.append(scores(name, translations[at : at + len(lines)], lines))
        at += len(lines)
    rare = [i for i, numbers in enumerate(sentences) if numbers[10]]
    made += [scores("all", translations, references), scores("with rare words", translations, references, rare)]
    return {"scores": made, "sentences": sentences, "rare_words": of["rare_words"]}


def measure(cell: Cell, config: dict[str, Any], text: Bitext, work: Path, kept: Path) -> dict[str, Any]:
    """Translations go to `kept`."""
    from transformers import MarianMTModel

    folder, of, length = work / "cells" / cell.name / "model", config["measured"], config["model"]["length"]
    if not folder.is_dir():
        train(cell, config, text, work)
    model: Any = MarianMTModel.from_pretrained(folder).to("cuda" if torch.cuda.is_available() else "cpu").eval()
    counts = text.counts(length).numpy()
    cut = by_ids(counts)
    states = states_of(model, text, length)
    scored = score(states, [cut])
    translations = [s for name in of["test"] for s in translated(model, text, text.lines(name, SOURCE), of, length)]
    write_bytes(kept, lzma.compress("\n".join(translations).encode()))
    documents = np.array(by_document(states, scored.loss, scored.masses, cut))
    return {
        "documents": [documents.sum(0).tolist()],  # targets, their loss and the probability of each group
        "ids": np.bincount(cut, minlength=4).tolist(),
        "median_count_of_rare": float(np.median(counts[cut == 2])),  # in an epoch
        "head": geometry(states.head, cut),
        "translations": kept.name,
    } | of_translations(translations, text, of)


def main(arguments: list[str] | None = None) -> None:
    made = parser()
    made.add_argument("--cells", nargs="+", help="names; by default all that have a result without measurements")
    made.add_argument("--scores", action="store_true", help="compute the scores of kept translations anew")
    asked = made.parse_args(arguments)
    config, text = opened(asked)
    for cell in cells(config):
        result = json.loads(cell.result.read_text()) if cell.result.exists() else None
        if result is None or result["diverged"] or (asked.cells and cell.name not in asked.cells):
            continue
        kept = cell.result.with_suffix(".txt.xz")
        if asked.scores and "measured" in result:
            translations = lzma.decompress(kept.read_bytes()).decode().split("\n")
            result["measured"] |= of_translations(translations, text, config["measured"])
        elif asked.cells or "measured" not in result:
            result["measured"] = measure(cell, config, text, asked.work, kept)
        else:
            continue
        write_text(cell.result, json.dumps(result, separators=(",", ":")) + "\n")
        bleu = ", ".join(f"{one['name']} {one.get('bleu', float('nan')):.2f}" for one in result["measured"]["scores"])
        print(f"{cell.name} BLEU: {bleu}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
