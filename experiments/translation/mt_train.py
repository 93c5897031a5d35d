"""Train one cell, or go on with it; its result is one JSON file, and the model lies in the work folder.

    python experiments/translation/mt_train.py multi30k.toml --arm column --rate 4e-3 --seed 0 --data FOLDER

A kill loses at most `SAVE_EVERY` steps of rare_tokens/train.py. Under `torchrun` the batch is shared by the ranks.
"""

import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1] / "rare_tokens"))
import train as one_cell
from arms import SLOW, Arm, adamw
from bitext import Bitext, batch_of

import uncone
from uncone.errors import InputError
from uncone.evaluation.language_model.scores import score
from uncone.model.last_states import States

HERE = Path(__file__).parent
RESULTS, WORK = HERE / "results", HERE / "work"
DATA = HERE.parents[2] / "shared" / "data" / "mt" / "multi30k-en-de"
BETAS = (0.9, 0.98)  # customary for translation, and those of the gate's authors
ALPHA = 0.03
"""Targets a step below which an id is rare to the gate. With 128 sentences a step these are the ids with at most 6
targets an epoch, the rarest 19% of those that occur, and the ids of the source language alone. The authors' .08, of
65,536 targets a step, would call 6% of all targets rare here."""
WINDOW = 227  # steps of an epoch, which the authors count over


def adam(model: Any, lr: float, **options: Any) -> torch.optim.Optimizer:
    return adamw(model.parameters(), lr=lr, **{"betas": BETAS} | options)


def column(model: Any, lr: float) -> torch.optim.Optimizer:
    """The shared table in `TableAdam`, once; the rest in the AdamW of the plain arm."""
    return uncone.with_table_adam(model, partial(adamw, lr=lr, betas=BETAS), lr=lr, betas=BETAS, second_moment="column")


def gate(counts: torch.Tensor) -> dict[str, Any]:
    """It acts on the softmax alone: what encoder and decoder read of the shared table has its whole gradient."""
    return {"gate": uncone.RareTokenGate(len(counts), mode="paper", alpha=ALPHA, window=WINDOW)}


ARMS = {
    "mle": Arm("AdamW, beta2 .98 (MLE)", optimizer=adam),
    "cosreg": Arm("CosReg", lambda counts: {"penalties": [uncone.CosinePenalty()]}, adam),
    "agg": Arm("AGG", gate, adam),
    "column": Arm("second moment a column", optimizer=column),
    "adamw999": Arm("AdamW, beta2 .999", optimizer=partial(adam, betas=SLOW)),
}


@dataclass(frozen=True)
class Cell(one_cell.Cell):
    """One training; the table is always shared and tied, the batch that of the config."""

    tied: bool = True
    batch: int = 128

    @property
    def name(self) -> str:
        return f"{self.config}-{self.arm}-{self.rate:g}-{self.seed}"

    @property
    def result(self) -> Path:
        return RESULTS / "cells" / f"{self.name}.json"

    @property
    def options(self) -> list[str]:
        return ["--arm", self.arm, "--rate", f"{self.rate:g}", "--seed", str(self.seed)]


def make_model(config: dict[str, Any], text: Bitext, seed: int) -> Any:
    from transformers import MarianConfig, MarianMTModel

    of = config["model"]
    shape: dict[str, Any] = {"d_model": of["width"], "max_position_embeddings": of["length"], "dropout": of["dropout"]}
    for side in ("encoder", "decoder"):
        shape |= {f"{side}_layers": of["layers"], f"{side}_attention_heads": of["heads"]}
        shape |= {f"{side}_ffn_dim": of["feed_forward"]}
    tokens = {"pad_token_id": text.pad, "decoder_start_token_id": text.pad, "eos_token_id": text.end}
    more = {"init_std": of["width"] ** -0.5, "scale_embedding": True, "share_encoder_decoder_embeddings": True}
    torch.manual_seed(seed)
    made = MarianMTModel(
        MarianConfig(
            vocab_size=text.vocabulary, **shape, **tokens, **more, forced_eos_token_id=None, tie_word_embeddings=True
        )
    )
    made.generation_config.suppress_tokens = [text.pad]
    return made


class Pairs(one_cell.Windows):
    """In the order of a seed; each run of `batch` pairs has about one length, so that little is padding."""

    def __init__(self, sources: list[list[int]], targets: list[list[int]], steps: int, batch: int, seed: int) -> None:
        lengths = torch.tensor([len(one) for one in targets])
        super().__init__(lengths, steps * batch, seed)
        self._pairs, random = (sources, targets), torch.Generator().manual_seed(seed)
        made = []
        for pool in self._order.split(50 * batch):
            batches = pool[lengths[pool].argsort(stable=True)].view(-1, batch)
            made.append(batches[torch.randperm(len(batches), generator=random)].flatten())
        self._order = torch.cat(made)

    def __getitem__(self, i: int) -> Any:
        return tuple(side[int(self._order[i])] for side in self._pairs)


def train(cell: Cell, config: dict[str, Any], text: Bitext, work: Path) -> dict[str, Any]:
    """The result, whose model lies in work/NAME/model."""
    length, of = config["model"]["length"], config["training"]
    sources, targets = text.ids("train", length)
    pairs, counts = Pairs(sources, targets, of["steps"], cell.batch, cell.seed), text.counts(length)
    model = make_model(config, text, cell.seed)
    smoothing = uncone.CrossEntropyOptions(label_smoothing=of["label_smoothing"])
    result = one_cell.fit(
        cell,
        ARMS[cell.arm],
        config,
        work,
        model,
        pairs,
        counts,
        save=text.save,
        attached_with={"options": smoothing},
        collator=lambda some: batch_of(*zip(*some, strict=True), text.pad),
    )
    result["targets_a_step"] = round(float(counts.sum()) * cell.batch / len(targets), 1)
    if not result["diverged"]:
        result["validation_loss"] = float(score(states_of(model, text, length), []).loss.mean())
    return result


@torch.no_grad()
def states_of(model: Any, text: Bitext, length: int, name: str = "val") -> States:
    """What the head reads before each target of a text, whose earlier targets the decoder is given."""
    sources, targets = text.ids(name, length)
    found = []
    model.eval()
    for at in range(0, len(sources), 64):
        batch = batch_of(sources[at : at + 64], targets[at : at + 64], text.pad)
        labels, *given = (batch[key].to(model.device) for key in ("labels", "input_ids", "attention_mask"))
        inputs = model.prepare_decoder_input_ids_from_labels(labels)
        found.append(model.model(*given, inputs).last_hidden_state[labels != -100].float().cpu())
    labels = torch.tensor([i for one in targets for i in one])
    of = torch.repeat_interleave(torch.arange(len(targets)), torch.tensor([len(one) for one in targets]))
    head, bias = model.lm_head.weight.detach().float().cpu(), model.final_logits_bias[0].float().cpu()
    return States(torch.cat(found), labels, head, bias, None, 1.0, name, of, texts=of)


def parser() -> Any:
    made = one_cell.parser(DATA, WORK)
    made.description = (sys.modules["__main__"].__doc__ or "").partition("\n")[0]
    return made


def opened(asked: Any) -> tuple[dict[str, Any], Bitext]:
    """The config and the texts that a command is given."""
    config = one_cell.read_config(asked.config if asked.config.exists() else HERE / asked.config)
    return config, Bitext(asked.data, asked.work, config["text"]["vocabulary"])


def main(arguments: list[str] | None = None) -> None:
    made = parser()
    made.add_argument("--arm", choices=list(ARMS), required=True)
    made.add_argument("--rate", type=float, required=True)
    made.add_argument("--seed", type=int, default=0)
    asked = made.parse_args(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    config, text = opened(asked)
    cell = Cell(config["name"], asked.arm, asked.rate, asked.seed, batch=config["training"]["batch"])
    one_cell.keep(cell, train(cell, config, text, asked.work))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
