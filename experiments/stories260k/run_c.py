"""What `run.c` of karpathy/llama2.c computes, written slowly from its description: the oracle of the conversion."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def logits(sizes: Mapping[str, int], tensors: Mapping[str, Array], tokens: list[int]) -> Array:
    """(T, V) in float64, position by position: rotary angles on neighbouring features, and the rest of Llama."""
    d, heads, kv_heads = sizes["dim"], sizes["n_heads"], sizes["n_kv_heads"]
    size, shared = d // heads, heads // kv_heads
    w = {name: value.astype("f8") for name, value in tensors.items()}
    keys: list[list[Array]] = [[] for _ in range(sizes["n_layers"])]
    values: list[list[Array]] = [[] for _ in range(sizes["n_layers"])]
    out = []
    for position, token in enumerate(tokens):
        x = w["tok_embeddings"][token].copy()
        for layer in range(sizes["n_layers"]):
            y = _norm(x, w["attention_norm"][layer])
            q = _rotate(w["attention.wq"][layer] @ y, position, size)
            keys[layer].append(_rotate(w["attention.wk"][layer] @ y, position, size))
            values[layer].append(w["attention.wv"][layer] @ y)
            mixed = np.zeros(d)
            for head in range(heads):
                mine = slice(head * size, (head + 1) * size)
                theirs = slice(head // shared * size, (head // shared + 1) * size)
                scores = np.array([q[mine] @ key[theirs] for key in keys[layer]]) / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                mixed[mine] = sum(a * value[theirs] for a, value in zip(weights, values[layer], strict=True))
            x = x + w["attention.wo"][layer] @ mixed
            y = _norm(x, w["ffn_norm"][layer])
            gate, up = w["feed_forward.w1"][layer] @ y, w["feed_forward.w3"][layer] @ y
            x = x + w["feed_forward.w2"][layer] @ (gate / (1 + np.exp(-gate)) * up)
        out.append(w.get("output", w["tok_embeddings"]) @ _norm(x, w["norm"]))
    return np.array(out)


def encode(text: str, pieces: list[bytes], scores: list[float]) -> list[int]:
    """The ids of a text after <s>: a space before it, bytes for unknown characters, then the best pair again and again."""
    ids = {piece: index for index, piece in reversed(list(enumerate(pieces))) if not 3 <= index < 259}
    tokens = [1]
    for character in (" " + text) if text else "":
        content = character.encode()
        tokens += [ids[content]] if content in ids else [byte + 3 for byte in content]
    while True:
        pairs = [
            (scores[ids[pieces[a] + pieces[b]]], -at)
            for at, (a, b) in enumerate(itertools.pairwise(tokens))
            if not (3 <= a < 259 or 3 <= b < 259) and a > 2 and pieces[a] + pieces[b] in ids
        ]
        if not pairs:
            return tokens
        at = -max(pairs)[1]
        tokens[at : at + 2] = [ids[pieces[tokens[at]] + pieces[tokens[at + 1]]]]


def _norm(x: Array, weight: Array) -> Array:
    return weight * x / np.sqrt((x * x).mean() + 1e-5)


def _rotate(x: Array, position: int, size: int) -> Array:
    """Feature 2i with 2i + 1 of each head, by position / 10000^(2i / size)."""
    out = x.copy()
    for i in range(0, len(x), 2):
        angle = position / 10000.0 ** ((i % size) / size)
        out[i] = x[i] * np.cos(angle) - x[i + 1] * np.sin(angle)
        out[i + 1] = x[i] * np.sin(angle) + x[i + 1] * np.cos(angle)
    return out
