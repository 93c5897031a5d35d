"""Measure trained cells on the validation text: losses by document and group, shares, word similarity, geometry, controls.

    python experiments/rare_tokens/measure.py core.toml --data FOLDER [--cells NAME...]

What is measured goes into the cell's own result file. A cell whose model is no longer in the work folder is trained anew first.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from arms import BETAS, SLOW
from fill import cells, path_of
from text import Text, articles
from train import HERE, Cell, parser, read_config, train

import uncone
from uncone.atomic import write_text
from uncone.errors import InputError
from uncone.evaluation.language_model.record import NAMES
from uncone.evaluation.language_model.scores import by_ids, by_mass, score
from uncone.measure.partition import partition_isotropy
from uncone.model.last_states import Causal, States, open_causal, states_of
from uncone.rows import CenteredRows

SHARED = HERE.parents[2] / "shared" / "data"
SETS = ("men3000", "ws353_all", "rg65", "rw2034")
MOST = 250_000  # targets of the validation text that are scored: whole articles but for the last, in their random order
SHIFTS = torch.linspace(-3.0, 3.0, 25)
"""Of the control: one number that is added to the logits of all rare ids, chosen on every other document."""


def by_document(states: States, loss: np.ndarray, masses: np.ndarray, cut: np.ndarray) -> list[list[float]]:
    """Of each document: targets of each group, their loss, and the group's probability."""
    assert states.texts is not None
    labels, of = states.labels.numpy(), states.texts.numpy()
    columns = [(cut[labels] == g).astype(float) for g in range(4)]
    columns += [loss * column for column in columns] + [masses[:, g].astype(float) for g in range(4)]
    sums = np.stack([np.bincount(of, column) for column in columns], axis=1)
    return [[round(x, 4) for x in row] for row in sums.tolist()]


def with_shift(states: States, own: np.ndarray, mass: np.ndarray, rare: np.ndarray) -> dict[str, Any]:
    """The loss of one bias on the rare logits: log(1 + p_rare (e^b - 1)) - b [the target is rare], p_rare known.

    Of the targets' losses `own` and the probability of rare ids `mass` (N,). The best shift of even documents is tried
    on odd ones, and the other way round.
    """
    assert states.texts is not None
    member, p = torch.from_numpy(rare), torch.from_numpy(mass).double()
    is_rare, odd = member[states.labels], states.texts % 2 == 1
    loss = torch.from_numpy(own) + torch.log1p(p * torch.expm1(SHIFTS.double()[:, None])) - SHIFTS[:, None] * is_rare
    chosen = [int(loss[:, ~half].mean(1).argmin()) for half in (odd, ~odd)]  # for odd, for even
    shifted = torch.where(odd, loss[chosen[0]], loss[chosen[1]])
    odds = torch.exp(torch.where(odd, SHIFTS[chosen[0]], SHIFTS[chosen[1]]).double())
    shifted_mass = p * odds / (1 + p * (odds - 1))
    return {
        "shifts": [float(SHIFTS[one]) for one in chosen],
        "loss": float(shifted.mean()),
        "rare_loss": float(shifted[is_rare].mean()),
        "log_ratio": float(torch.log(shifted_mass.mean() / is_rare.double().mean())),
        "loss_at_each": loss.mean(1).tolist(),
        "rare_loss_at_each": loss[:, is_rare].mean(1).tolist(),
    }


def geometry(head: torch.Tensor, cut: np.ndarray) -> dict[str, Any]:
    """Of the head's rows: cosines as they are and without their mean row, by group; norms; I(W)."""
    rows = uncone.open_rows(head)
    moments = uncone.Moments.of(rows)
    centred = head - head.mean(0)
    norms = head.norm(dim=1)
    found: dict[str, Any] = {
        "mean_cosine": float(uncone.measure.mean_cosine(moments)),
        "mean_cosine_centred": float(uncone.measure.mean_cosine(uncone.Moments.of(uncone.open_rows(centred)))),
        "partition_isotropy": float(partition_isotropy(rows)),
        "partition_isotropy_centred": float(partition_isotropy(CenteredRows(rows, moments.mean()))),
        "mean_row": float(head.mean(0).norm() / norms.mean()),
        "singular_values": torch.linalg.svdvals(centred.double()).tolist(),
    }
    for g, name in enumerate(NAMES):
        here = torch.from_numpy(cut == g)
        if int(here.sum()) > 1:
            of = [uncone.Moments.of(uncone.open_rows(one[here])) for one in (head, centred)]
            cosines = [float(uncone.measure.mean_cosine(one)) for one in of]
            found[name] = {"norm": float(norms[here].median()), "mean_cosine": cosines[0], "centred": cosines[1]}
    return found


def predicted(counts: np.ndarray, cut: np.ndarray, targets: int) -> dict[str, list[float]]:
    """By beta2, the log ratio of each group that kappa foretells for Adam: a token comes at even distances, and the
    ratio of its predicted to its true share is kappa / (2 (exp(kappa / 2) - 1)), kappa = (1 - beta2) / (share targets).
    """
    share, found = counts / counts.sum(), {}
    for beta2 in (BETAS[1], SLOW[1]):
        half = np.minimum((1 - beta2) / np.maximum(share, 1e-12) / targets / 2, 700.0)
        ratio = half / np.expm1(half)
        sums = [(share[cut == g] * ratio[cut == g]).sum() / share[cut == g].sum() for g in range(3)]
        found[f"{beta2:g}"] = [float(np.log(one)) for one in sums]
    return found


def plane(folder: Path, cut: np.ndarray, each: int = 150) -> dict[str, Any]:
    """Rows of the head in its first two principal directions, the mean row not taken off (Gao et al. 2019, figure 1),
    by the step after which it was kept: ids evenly spaced in each group."""
    ids = np.concatenate([(at := np.flatnonzero(cut == g))[np.arange(each) * len(at) // each] for g in range(3)])
    found: dict[str, Any] = {"ids": ids.tolist(), "groups": cut[ids].tolist(), "steps": {}}
    for file in sorted(folder.glob("*.npy"), key=lambda one: int(one.stem)):
        head = torch.from_numpy(np.load(file)).double()
        axes = torch.linalg.eigh(head.T @ head).eigenvectors[:, [-1, -2]]
        at = head[torch.from_numpy(ids)] @ (axes * torch.where((head @ axes).sum(0) < 0, -1.0, 1.0))
        found["steps"][file.stem] = [[round(x, 3) for x in row] for row in at.tolist()]
    return found


def generated(causal: Causal, documents: list[str], text: Text) -> list[list[str]]:
    """[beginning, what the model draws after it] of some documents, by one seed."""
    found, room = [], causal.model.config.n_positions
    prompt, more_ids = min(24, room // 3), min(40, room - room // 3)
    for at in (1, 4, 7):
        ids = torch.tensor([text.tokenizer.encode(documents[at % len(documents)]).ids[:prompt]]).to(
            causal.head.weight.device
        )
        torch.manual_seed(at)
        with torch.no_grad():
            given: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "pad_token_id": 0}
            more = causal.model.generate(ids, **given, do_sample=True, top_p=0.9, top_k=0, max_new_tokens=more_ids)
        found.append([text.tokenizer.decode(one) for one in (ids[0].tolist(), more[0, ids.shape[1] :].tolist())])
    return found


def word_similarity(model: Path) -> dict[str, Any]:
    """Spearman x 100 of output rows, as they are and centred, with their difference."""
    found = {}
    for name in SETS:
        table = SHARED / "wordsim" / f"{name}.tsv"
        if table.is_file():
            made: Any = uncone.evaluate(f"{model}#head", task="wordsim", data=table, method=["center"])
            numbers = next(iter(made.results["wordsim"].values()))
            found[name] = {
                repair: {key: of.get(key) for key in ("spearman_cosine", "n")} for repair, of in numbers.items()
            }
    return found


def measure(cell: Cell, config: dict[str, Any], text: Text, work: Path) -> dict[str, Any]:
    model, counts = work / "cells" / cell.name / "model", text.counts().numpy()
    if not model.is_dir():
        train(cell, config, text, work)
    documents = list(articles(text.folder, "valid"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    causal = open_causal(model, device=device)
    states = states_of(causal, documents, most=MOST)
    cuts = [by_ids(counts), by_mass(counts)]
    scores = score(states, cuts, device=causal.head.weight.device)
    lambada = SHARED / "lambada" / "lambada_test.jsonl.xz"
    record = uncone.evaluate_language_model(
        model, documents, counts=counts, data=lambada if lambada.is_file() else None, most=MOST, device=device
    )
    kept = work / "cells" / cell.name / "heads"
    drawn = kept.is_dir() and cell.arm in config["picture"]["arms"] and cell.seed == 0
    targets = cell.batch * config["model"]["length"]
    return {
        "plane": plane(kept, cuts[0]) if drawn else None,
        "generated": generated(causal, documents, text),
        "predicted": predicted(counts, cuts[0], targets),
        "documents": by_document(states, scores.loss, scores.masses[:, :4], cuts[0]),
        "evaluation": json.loads(record.to_json()),
        "shifted": with_shift(states, scores.loss, scores.masses[:, 2], cuts[0] == 2),
        "head": geometry(states.head, cuts[0]),
        "word_similarity": word_similarity(model),
    }


def main(arguments: list[str] | None = None) -> None:
    made = parser()
    made.add_argument("--cells", nargs="+", help="names; by default all that have a result without measurements")
    asked = made.parse_args(arguments)
    for part in ("wordsim", "lambada"):
        if not (SHARED / part).is_dir():
            raise InputError(
                f"expected word pairs and passages in {SHARED}, got no folder {part!r}: they are measured too"
            )
    path = asked.config if asked.config.exists() else path_of(asked.config.stem)
    config = read_config(path)
    text = Text(asked.data, asked.work, config["text"]["vocabulary"], config["text"]["tokenizer_shards"])
    for cell in cells(config):
        result = json.loads(cell.result.read_text()) if cell.result.exists() else None
        wanted = cell.name in asked.cells if asked.cells else result is not None and "measured" not in result
        if wanted and result is not None and not result["diverged"]:
            assert result["cell"] == asdict(cell)
            result["measured"] = measure(cell, config, text, asked.work)
            write_text(cell.result, json.dumps(result, separators=(",", ":")) + "\n")
            print(cell.name, result["measured"]["evaluation"]["verdict"], flush=True)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
