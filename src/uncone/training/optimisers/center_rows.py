"""`CenterRows`: subtract the mean row of an output head after each step."""

from typing import Any

import torch

from uncone.errors import UnsupportedModel, needed
from uncone.model.head_map import logit_map
from uncone.training.attachment import unwrapped
from uncone.training.heads import is_tied, output_head
from uncone.training.lightning import lightning_callback
from uncone.training.optimisers.rows import blocks, column_sums, local, over_shards


class CenterRows:
    """Subtracts the mean row of a model's output head after each optimiser step.

        w_i <- w_i - mean over all rows j of w_j

    Source: mu-centering of Output Embedding Centering, Stollenwerk, Lokrantz and Hertzberg 2026, arXiv 2601.02031. As
    in its code, the mean is over all rows, including padding rows, and the optimiser's moments stay the same. All
    logits of a position move by one number, so probabilities change only by rounding, with a bias or without. Centring
    therefore removes no cone from a model's predictions. It keeps logits from growing together, which allows larger
    learning rates.

    Cost: two passes over the head per step, one that reads and one that writes; no V x D memory. In bfloat16 a row
    moves only where the mean is larger than the rounding of its numbers. A head sharded by rows sums one D-vector.

        centering = uncone.CenterRows(model)
        optimizer.step(); centering.step()                       # in your own loop
        Trainer(model, ..., callbacks=[centering.callback])      # in Lightning centering.lightning

    `mean` is the mean row (D,) that the last step subtracted.

    Args:
        model: a transformers model with a linear head, also inside DDP, PEFT or a compiler.
        tied: centre a head that is also the token table. That changes what the model reads, so nothing is claimed about
            its probabilities.

    Raises:
        UnsupportedModel: a tied head without `tied=True`; logits that are capped (Gemma 2), where the mean row does
            change probabilities; a head that is not linear.
    """

    def __init__(self, model: Any, *, tied: bool = False) -> None:
        self._model = unwrapped(model)
        self._head = output_head(self._model)
        if (cap := logit_map(self._model, self._head).cap) is not None:
            raise UnsupportedModel(
                f"expected logits without a cap, got a cap of {cap:g}: under it the mean row changes probabilities. "
                "Use uncone.with_table_adam(model, second_moment='column', lr=...), or AdamW with betas=(0.9, 0.999)"
            )
        weight = self._head.weight
        if not weight.requires_grad:
            got = "got a frozen one, which has no drift to remove: leave CenterRows out, or unfreeze the head first"
            raise UnsupportedModel(f"expected a head that trains, {got}")
        if is_tied(self._model, weight) and not tied:
            raise UnsupportedModel(
                "expected a separate head, got one that is also the token table: centring would change what the model "
                "reads. Use uncone.with_table_adam(model, second_moment='column', lr=...), or uncone.CenterRows(model, "
                "tied=True) to try it"
            )
        self.mean: torch.Tensor | None = None

    @torch.no_grad()
    def step(self) -> None:
        """Call it after each `optimizer.step()`; a second call right after changes only rounding. UnsupportedModel
        where the model has another head by now."""
        if output_head(self._model) is not self._head:
            got = "got another: was it replaced (resized embeddings, modules_to_save)? Make CenterRows after that"
            raise UnsupportedModel(f"expected the head that CenterRows was made for, {got}")
        table = self._head.weight  # sharding replaces the parameter
        weight = local(table)
        self.mean = over_shards(column_sums(weight), table, 0) / table.shape[0]
        for at in blocks(weight):
            rows = weight[at]
            if rows.dtype == self.mean.dtype:
                rows.sub_(self.mean)
            else:
                rows.copy_(rows.to(self.mean.dtype).sub_(self.mean))

    @property
    def callback(self) -> Any:
        """For a transformers Trainer: `step()` right after its optimiser's step."""
        message, centering = "a callback needs transformers: pip install 'uncone[hf]'", self
        trainer_callback: Any = needed("transformers", message, UnsupportedModel).TrainerCallback

        class Callback(trainer_callback):  # type: ignore[misc]
            def on_train_begin(self, args: Any, *others: Any, **kwargs: Any) -> None:
                _refuse_deepspeed(getattr(args, "deepspeed", None))

            def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
                centering.step()

        return Callback()

    @property
    def lightning(self) -> Any:
        """For a `lightning.pytorch.Trainer`: the same."""

        def begin(trainer: Any, loaded: bool) -> None:
            _refuse_deepspeed("DeepSpeed" in type(trainer.strategy).__name__)

        return lightning_callback(self.step, name="CenterRows", begin=begin)


def _refuse_deepspeed(given: Any) -> None:
    if given:
        got = "got DeepSpeed's, which holds copies: centre with DDP or FSDP2"
        raise UnsupportedModel(f"expected an optimiser that holds the model's weights, {got}")
