"""The geometry of a sentence encoder, as an evaluator of Sentence Transformers."""

from collections.abc import Sequence
from typing import Any

import torch

from uncone.errors import InputError, UnsupportedModel, needed
from uncone.roles import Path_
from uncone.training.monitor.monitor import Monitor
from uncone.training.monitor.rules import Rules


def GeometryEvaluator(sentences: Sequence[str], path: Path_ | None = None, *, name: str = "geometry") -> Any:  # noqa: N802
    """An evaluator for a `SentenceTransformerTrainer` that reads the states of held-out sentences, and the table, at
    each evaluation. Its numbers reach trackers and the model card; the loss stays as it is.

        SentenceTransformerTrainer(model, args, ..., evaluator=uncone.GeometryEvaluator(sentences))

    Args:
        sentences: at least two; use some hundred that training does not see.
        path: the run's file, one line per evaluation; a resumed run continues it; None writes no file.
        name: the prefix of each number's name.

    Its primary metric, for choosing a best model, is the effective rank of the states: more is better.
    InputError for fewer than two sentences; UnsupportedModel where sentence-transformers is not installed.
    """
    if isinstance(sentences, str) or len(sentences) < 2:
        raise InputError(f"expected at least two sentences, got {len(sentences)}: one state has no geometry")
    message = "GeometryEvaluator needs sentence-transformers: pip install 'uncone[sentence]'"
    module = "sentence_transformers.sentence_transformer.evaluation"
    base: Any = needed(module, message, UnsupportedModel).SentenceEvaluator

    class Evaluator(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.name, self.primary_metric = name, "states.effective_rank"
            self._monitor: Any = None

        @property
        def description(self) -> str:
            return "Geometry"

        def __call__(
            self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
        ) -> dict[str, float]:
            if self._monitor is None or self._monitor._taps.model is not model:
                self._monitor = Monitor(path, model, every=1, rules=None)
            monitor = self._monitor
            points = model.encode(list(sentences), convert_to_tensor=True, show_progress_bar=False)
            step = steps if steps >= 0 else monitor.steps + 1
            if step > 0 and not monitor.last:
                monitor.resume(step - 1)  # an evaluation of a later step belongs to the run before a resume
            elif monitor.rules is None and step > monitor.steps:
                monitor.rules = Rules(step - monitor.steps)  # steps from one evaluation to the next
            numbers = monitor.measure(step, states=points.to(torch.float32))
            metrics: dict[str, float] = self.prefix_name_to_metrics(numbers, name)
            self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
            return metrics

    return Evaluator()
