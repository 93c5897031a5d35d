"""The states that a language model's head reads on a text, and the head."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.memory import check_memory
from uncone.model.head_map import HeadMap, forward_of, is_seq2seq, logit_map, run_model, undisturbed
from uncone.model.model_class import load_model
from uncone.model.open import open_whole
from uncone.model.text_sources import read_texts
from uncone.model.texts import longest_input, tokenizer_for_text
from uncone.roles import Path_, Progress
from uncone.tensors import dtype_named, empty, moved, usable

Tensor = torch.Tensor
CLOSE = 1e-3  # largest difference of states times head from the model's logits, over the largest logit
CENTRED = 1e-4  # largest mean of a norm's output before gain and bias, over its root mean square


@dataclass(frozen=True, eq=False)
class States:
    """The states a head reads on a text. Logits are cap tanh(z / cap), with z = scale (states @ head.T) + bias."""

    states: Tensor  # (N, D) float32: what the head multiplies, after the final norm
    labels: Tensor  # (N,) int64: the next token after each state
    head: Tensor  # (V, D) float32
    bias: Tensor | None  # (V,) float32, added after the scale
    cap: float | None
    scale: float
    name: str
    windows: Tensor  # (N,) int64, ascending: the window of text that holds each token, the block to resample
    norm: tuple[Tensor, Tensor] | None = None  # gain and bias (D,) of the LayerNorm with bias that made the states
    inputs: Tensor | None = None  # (N,) int64: the token before each label, which was read last
    texts: Tensor | None = None  # (N,) int64, ascending: the text that holds each token

    def logits(self, states: Tensor, head: Tensor | None = None) -> Tensor:
        """Logits (n, V) of states (n, D), by this head or another, in the dtype of the states."""
        weight = self.head if head is None else head
        return self.of_product(states @ weight.to(states.dtype).T)

    def of_product(self, product: Tensor) -> Tensor:
        """The logits (n, V) of states times the rows of a head."""
        bias = None if self.bias is None else self.bias.to(product.dtype)
        return HeadMap(self.scale, bias, self.cap, False).logits(product)

    def some(self, most: int) -> "States":
        """At most `most` of the tokens, evenly spaced."""
        at = torch.arange(k := min(len(self.labels), most)) * len(self.labels) // max(k, 1)
        cut: dict[str, Any] = {"states": self.states[at], "labels": self.labels[at], "windows": self.windows[at]}
        cut |= {name: one[at] for name in ("inputs", "texts") if (one := getattr(self, name)) is not None}
        return replace(self, **cut)

    def chunks(self, most: int = 2**24) -> Iterator[slice]:
        """Slices of tokens with at most `most` logits together, but at least one token."""
        size = max(1, most // len(self.head))
        for start in range(0, len(self.states), size):
            yield slice(start, min(start + size, len(self.states)))


@dataclass(frozen=True, eq=False)
class Causal:
    """A causal language model with one linear head, and its tokenizer."""

    model: Any
    head: torch.nn.Linear
    tokenizer: Any
    name: str


def open_causal(
    model: Path_, *, device: str | torch.device | None = None, dtype: str | torch.dtype | None = None
) -> Causal:
    """Open a causal model. UnsupportedModel: another kind of model. InputError: no model, or no tokenizer."""
    opened, place, width = open_whole(model), usable(device), dtype_named(dtype)
    tokenizer = tokenizer_for_text(opened)
    loaded = moved(load_model(opened.files, dtype=width, fast=True), place, width)
    head = getattr(loaded, "get_output_embeddings", lambda: None)()
    if not isinstance(head, torch.nn.Linear) or is_seq2seq(loaded):
        kind = "an encoder and a decoder" if is_seq2seq(loaded) else type(head).__name__
        got = f"{type(loaded).__name__} with {kind}: the states of its head are not known"
        raise UnsupportedModel(f"expected a causal model with one linear head, got {got}")
    return Causal(loaded, head, tokenizer, opened.name)


def states_of(
    model: Path_ | Causal,
    text: Path_ | Sequence[str],
    *,
    most: int = 200_000,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    progress: Progress | None = None,
) -> States:
    """Run a causal language model on a text, and keep the states its head reads, in float32 on the CPU.

    Texts are cut into windows as long as the model's positions, at most 2,048. A window's last token is the first of
    the next window, so every token except a text's first is predicted once, `most` in all. A text file is read up to
    2**20 characters. Nothing is predicted across the boundaries of a list of texts.
    """
    if most < 2:
        raise InputError(f"expected to predict at least 2 tokens, got {most}: 200,000 is usual")
    causal = model if isinstance(model, Causal) else open_causal(model, device=device, dtype=dtype)
    texts = read_texts(text) if isinstance(text, str | os.PathLike) else list(text)
    ids = [torch.tensor(one.ids, dtype=torch.int64) for one in causal.tokenizer.encode_batch(texts)]
    return states_of_ids(causal, ids, most=most, progress=progress)


def states_of_ids(causal: Causal, ids: Sequence[Tensor], *, most: int, progress: Progress | None = None) -> States:
    """`states_of` for texts that are already ids (N,)."""
    loaded, head = causal.model, causal.head
    n, top = loaded.get_input_embeddings().num_embeddings, max((int(i.max()) for i in ids if len(i)), default=0)
    if top >= min(n, len(head.weight)):
        raise InputError(f"expected ids below {n}, got {top}: the tokenizer belongs to another model")
    found = list(_windows(ids, longest_input(loaded, 2048), most))
    windows = [window for _, window in found]
    if sum(len(w) - 1 for w in windows) < 2:
        raise InputError("expected texts of at least three tokens, got fewer: give a longer text")
    of = torch.tensor([place for place, window in found for _ in window[1:]])
    inputs = torch.cat([window[:-1] for window in windows])
    with undisturbed(loaded):
        states = _run(loaded, head, windows, progress)
        return replace(described(loaded, head, states, windows, causal.name), inputs=inputs, texts=of)


def _windows(ids: Sequence[Tensor], length: int, most: int) -> Iterator[tuple[int, Tensor]]:
    """Windows and the index of their text. All but a text's first share an id with the one before. `most` labels."""
    left = most
    for place, text in enumerate(ids):
        for start in range(0, len(text) - 1, length - 1):
            window = text[start : start + min(length, left + 1)]
            left -= len(window) - 1
            if len(window) > 1:
                yield place, window


def _run(model: Any, head: torch.nn.Linear, windows: Sequence[Tensor], progress: Progress | None) -> Tensor:
    """The states (N, D) before each next token, without the head's product, which is expensive."""
    counts = [len(window) - 1 for window in windows]
    n, d, device = sum(counts), head.weight.shape[1], head.weight.device
    check_memory(2 * n * d * 4, f"states of {n} tokens and {d} columns", "read fewer tokens")
    states, seen = empty((n, d), torch.float32), []
    starts, done = torch.tensor([0, *counts]).cumsum(0).tolist(), 0

    def reads(hidden: Tensor) -> Tensor:
        seen.append(hidden.detach())
        return hidden[..., :1]

    order = sorted(range(len(windows)), key=lambda i: -counts[i])
    with forward_of(head, reads):
        while order:
            size = max(1, 4096 // len(windows[order[0]]))
            batch, order = order[:size], order[size:]
            ids, mask = padded([windows[i] for i in batch], device)
            seen.clear()
            run_model(model, {"input_ids": ids, "attention_mask": mask})
            if len(seen) != 1 or seen[0].shape[:2] != ids.shape:
                how = f"{type(model).__name__} computes its probabilities in another way"
                raise UnsupportedModel(f"expected one use of the head, at every position, got {len(seen)}: {how}")
            for row, i in enumerate(batch):
                states[starts[i] : starts[i + 1]] = seen[0][row, : counts[i]].float().cpu()
            done += sum(counts[i] for i in batch)
            if progress is not None:
                progress("running the model", done, n)
    return states


def padded(rows: list[Tensor], device: torch.device) -> list[Tensor]:
    """Ids (B, T), and a mask with 1 for each id that is not padding."""
    both = rows, [torch.ones_like(row) for row in rows]
    return [torch.nn.utils.rnn.pad_sequence(some, batch_first=True).to(device) for some in both]


def described(model: Any, head: torch.nn.Linear, states: Tensor, windows: Sequence[Tensor], name: str) -> States:
    """The `States` of a run. Their logits are checked against the model's own on the first window."""
    if not bool(torch.isfinite(states).all()):
        raise UnsupportedModel(f"expected finite states of {name}, got NaN or inf: the model is damaged")
    found = logit_map(model, head)
    bias = None if head.bias is None else found.scale * head.bias.detach().float().cpu()
    if found.bias is not None:
        bias = found.bias.cpu() if bias is None else bias + found.bias.cpu()
    first = windows[0][None, :128].to(head.weight.device)
    counts = torch.tensor([len(window) - 1 for window in windows])
    result = States(
        states=states,
        labels=torch.cat([window[1:] for window in windows]),
        head=head.weight.detach().float().cpu().clone(),
        bias=bias,
        cap=found.cap,
        scale=found.scale,
        name=name,
        windows=torch.repeat_interleave(torch.arange(len(windows)), counts),
        norm=final_layer_norm(model, head, first),
    )
    own = run_model(model, {"input_ids": first}).logits[0, :-1].float().cpu()
    # A causal model gives the same logits without the text's end.
    shorter = run_model(model, {"input_ids": first[:, : max(1, first.shape[1] // 2)]}).logits[0].float().cpu()
    size, ours = float(own.abs().max()), result.logits(states[: first.shape[1] - 1])
    close = max(CLOSE, 8 * torch.finfo(head.weight.dtype).eps)  # bfloat16 differs by some roundings
    for what, error in (
        ("states times the head", (own - ours).abs().max()),
        ("the first half of the text alone", (own[: len(shorter)] - shorter[: len(own)]).abs().max()),
    ):
        if not float(error) <= close * size:
            raise UnsupportedModel(
                f"expected logits of {type(model).__name__} that follow from {what}, got a difference of "
                f"{float(error):.2g} of {size:.2g}: give a causal model with a linear head"
            )
    return result


def final_layer_norm(model: Any, head: torch.nn.Linear, ids: Tensor) -> tuple[Tensor, Tensor] | None:
    """Gain and bias (D,), float32, of the LayerNorm whose output is what the head reads: GPT-2's `ln_f`.

    A norm without bias, or a norm that does not centre (RMSNorm), gives no direction. `model` is in evaluation mode and
    is run on `ids` (B, T).
    """
    outputs, inputs = [], []
    hooks = [head.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))]
    for module in model.modules():
        gain, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        if isinstance(gain, Tensor) and isinstance(bias, Tensor) and gain.shape == bias.shape == head.weight.shape[1:]:
            hooks.append(module.register_forward_hook(lambda one, _, made: outputs.append((one, made))))
    try:
        run_model(model, {"input_ids": ids})
    finally:
        for hook in hooks:
            hook.remove()
    for module, made in reversed(outputs):
        if inputs and isinstance(made, Tensor) and made.shape == inputs[-1].shape and torch.equal(made, inputs[-1]):
            gain, bias = module.weight.detach().float().cpu(), module.bias.detach().float().cpu()
            return (gain, bias) if _is_centred(made, gain, bias) else None
    return None


def _is_centred(made: Tensor, gain: Tensor, bias: Tensor) -> bool:
    """Whether (made - bias) / gain has mean 0 and size 1. An entry with a tiny gain is unknown."""
    eps = torch.finfo(made.dtype).eps
    close = max(CENTRED, 4 * eps)
    live = eps * bias.abs() < close * gain.abs()
    if not bool(live.any()):
        return False
    before = ((made.detach().double().cpu() - bias.double()) / gain.double()).flatten(0, -2)[:, live]
    size, lost = before.square().mean().sqrt(), int((~live).sum())
    mean = before.sum(1).abs().max() / len(gain)
    # An unknown entry may be 5 sizes large.
    return bool(size <= 1 + 10 * close) and bool(mean <= close * size + 5.0 * lost / len(gain))
