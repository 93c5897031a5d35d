"""A transformers model as layers: the states of each layer, and what the head reads and does."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from uncone.errors import UnconeError, UnsupportedModel, first_line
from uncone.model.head_map import forward_of, is_seq2seq, logit_map, run_model
from uncone.model.hugging_face import load_encoder
from uncone.model.layer_states import Head
from uncone.model.model_class import load_model
from uncone.model.open import Opened, open_spec
from uncone.model.sentence_transformers import is_sentence_transformers
from uncone.model.texts import longest_input, tokenizer_for_text
from uncone.roles import Path_
from uncone.tensors import dtype_named, moved, usable

Tensor = torch.Tensor
_CLOSE = 1e-3  # relative difference allowed between states of one text in two batches
NO_HEAD, ONLY_ENCODER = ("the model has no output head", "only the encoder of this encoder-decoder was read")


@dataclass(eq=False)
class LayeredModel:
    """The model. Its layers get their names once a probe has found them."""

    model: Any
    tokenizer: Any
    device: torch.device
    rows: int  # of its table
    notes: list[str] = field(default_factory=list)
    names: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    causal: bool = False  # states do not depend on what follows them
    linear: torch.nn.Linear | None = None  # the head
    read: int | None = None  # the index of the layer that the head reads; None without a linear head
    why_no_head: str = ""
    files: tuple[Path, ...] = ()  # the files that it was read from
    _norm: torch.nn.Module | None = None

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = next(self.model.parameters()).dtype
        return found

    @property
    def longest(self) -> int:
        return longest_input(self.model, 512)

    def states(self, ids: Tensor, mask: Tensor) -> list[Tensor]:
        found, norm_input, reads = self._forward(ids, mask)
        layers = list(found)
        if norm_input is not None:
            layers[-1:] = [norm_input, layers[-1]]
        return layers if self.read is None or self.read < len(layers) else [*layers, reads[0]]

    def head(self) -> Head | None:
        if self.linear is None or self.read is None:
            return None
        weight, bias = _array(self.linear.weight), _array(self.linear.bias)
        try:
            found = logit_map(self.model, self.linear)
        except UnconeError as error:
            why = first_line(error)
            self.notes.append(f"How the logits follow from the head is unknown ({why}). No cap was assumed.")
            return Head(weight, bias)
        own, scaled = _array(found.bias), None if bias is None else found.scale * bias
        both = own if scaled is None else scaled if own is None else scaled + own
        return Head(weight, both, found.cap, found.scale)

    def _forward(self, ids: Tensor, mask: Tensor) -> tuple[tuple[Tensor, ...], Tensor | None, list[Tensor]]:
        """The hidden states of transformers, what the final norm takes, and what the head reads."""
        taken, reads = [], []

        def noted(hidden: Tensor) -> Tensor:  # instead of the head's product, which is expensive
            reads.append(hidden.detach())
            return hidden[..., :1]

        with ExitStack() as stack:
            if self.linear is not None:
                stack.enter_context(forward_of(self.linear, noted))
            if self._norm is not None:
                hook = self._norm.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0].detach()))
                stack.callback(hook.remove)
            out = run_model(self.model, {"input_ids": ids, "attention_mask": mask, "output_hidden_states": True})
        hidden = getattr(out, "hidden_states", None)
        if not hidden:
            got = f"{type(self.model).__name__}: give a transformers encoder or decoder"
            raise UnsupportedModel(f"expected a model that returns its hidden states, got {got}")
        return tuple(hidden), taken[0] if taken else None, reads


def open_layered(
    path: Path_, *, device: str | torch.device | None = None, dtype: str | torch.dtype | None = None
) -> LayeredModel:
    """Open the transformer in a directory of transformers or Sentence Transformers. From an encoder and a decoder, take
    the encoder."""
    place, width = usable(device), dtype_named(dtype)
    opened = open_spec(path)
    model, notes = _loaded(opened, width)
    files, tokenizer = opened.files, tokenizer_for_text(opened)
    table = model.get_input_embeddings()
    rows = getattr(table, "num_embeddings", None) or len(table.weight)
    model = moved(model, place, width)
    head = getattr(model, "get_output_embeddings", lambda: None)()
    why = "" if isinstance(head, torch.nn.Linear) else f"the head is {type(head).__name__}, not a linear layer"
    if head is None:
        why = ONLY_ENCODER if files.config.get("is_encoder_decoder") else NO_HEAD
    own = tuple(sorted(path for path in files.path.iterdir() if path.suffix in (".json", ".safetensors", ".bin")))
    found = LayeredModel(model, tokenizer, place, int(rows), notes, why_no_head=why, files=own)
    found.linear = None if why else head
    _probe(found)
    return found


def _loaded(opened: Opened, dtype: torch.dtype) -> tuple[Any, list[str]]:
    path, folder = opened.path, opened.files.path
    if is_sentence_transformers(path):
        if not (folder / "config.json").is_file():
            raise UnsupportedModel(f"expected a transformer in {path}, got none: without layers, diagnose its table")
        return load_encoder(folder)[0], ["The model is the transformer of a sentence encoder."]
    model = load_model(opened.files, dtype=dtype, fast=True)
    if not is_seq2seq(model):
        return model, []
    return model.get_encoder(), ["Only the encoder of this encoder-decoder was read."]


def _probe(found: LayeredModel) -> None:
    """Find the final norm, the layer that the head reads, and whether the model is causal."""
    usable_ids = torch.arange(found.rows)[-64:]
    random = torch.Generator().manual_seed(0)
    ids = usable_ids[torch.randint(len(usable_ids), (1, 8), generator=random)].to(found.device)
    other, mask = ids.clone(), torch.ones_like(ids)
    other[0, -1] = usable_ids[0] if int(ids[0, -1]) != int(usable_ids[0]) else usable_ids[-1]
    with torch.no_grad():
        hidden, _, reads = found._forward(ids, mask)
        before, changed = hidden[-1][:, :-1].float(), found._forward(other, mask)[0][-1][:, :-1].float()
        found.causal = float((before - changed).abs().max()) <= _CLOSE * float(before.abs().max())
        found._norm = _final_norm(found, ids, mask)
        layers = found.states(ids, mask)
        names = ["embeddings", *(f"layer {i}" for i in range(1, len(hidden)))]
        names += ["final norm"] if len(layers) > len(names) else []
        if found.linear is not None and len(reads) != 1:
            found.linear, found.why_no_head = None, f"the head is used {len(reads)} times in a run"
        if found.linear is not None:
            same = [i for i, x in enumerate(layers) if x.shape == reads[0].shape and torch.equal(x, reads[0])]
            found.read = same[-1] if same else len(layers)
            names += [] if same else ["before the head"]
            layers = found.states(ids, mask)
    found.names, found.widths = tuple(names), tuple(x.shape[-1] for x in layers)


def _final_norm(found: LayeredModel, ids: Tensor, mask: Tensor) -> torch.nn.Module | None:
    """The norm after the last layer. It is in no list of layers, and its output is the last hidden state."""
    outputs = {}

    def note(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if inputs and isinstance(output, Tensor) and isinstance(inputs[0], Tensor):
            outputs[module] = (inputs[0], output)

    with ExitStack() as stack:
        for name, module in found.model.named_modules():
            if "norm" in type(module).__name__.lower() and not any(part.isdigit() for part in name.split(".")):
                stack.callback(module.register_forward_hook(note).remove)
        last = found._forward(ids, mask)[0][-1]
    fitting = [m for m, (x, y) in outputs.items() if y.shape == x.shape == last.shape and torch.equal(y, last)]
    return next((m for m in reversed(fitting) if not torch.equal(*outputs[m])), None)


def _array(x: Tensor | None) -> Any:
    return None if x is None else x.detach().float().cpu().numpy().copy()
