"""llama2.c files made for a test, and what run.c computes from one, written slowly from its description."""

import itertools
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

SIZES = {
    "dim": 16,
    "hidden_dim": 12,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "vocab_size": 300,
    "seq_len": 16,
}
STORIES = (Path(__file__).parents[2] / "../shared/data/models/stories260K").resolve()


def tensors(sizes: Mapping[str, int], *, tied: bool = True, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights of these sizes, under the names of llama2.c's training code, layers stacked."""
    random = np.random.default_rng(seed)
    d, h, n, v = sizes["dim"], sizes["hidden_dim"], sizes["n_layers"], sizes["vocab_size"]
    size = d // sizes["n_heads"]
    kv = size * sizes["n_kv_heads"]
    angles = np.outer(np.arange(sizes["seq_len"]), 10000.0 ** (-np.arange(0, size, 2) / size))
    shapes = {
        "tok_embeddings": (v, d), "attention_norm": (n, d), "attention.wq": (n, d, d), "attention.wk": (n, kv, d),
        "attention.wv": (n, kv, d), "attention.wo": (n, d, d), "ffn_norm": (n, d), "feed_forward.w1": (n, h, d),
        "feed_forward.w2": (n, d, h), "feed_forward.w3": (n, h, d), "norm": (d,),
    }  # fmt: skip
    found = {name: random.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    found |= {"freqs_cos": np.cos(angles).astype("f4"), "freqs_sin": np.sin(angles).astype("f4")}
    return found if tied else found | {"output": random.standard_normal((v, d)).astype("f4")}


def write(path: Path, sizes: Mapping[str, int], found: Mapping[str, np.ndarray], version: int = 0) -> Path:
    """The file of version 0 or 1; without an "output" the head is the table."""
    tied = "output" not in found
    if version == 0:
        numbers = [*sizes.values()]
        numbers[5] *= 1 if tied else -1
        head, names = struct.pack("<7i", *numbers), list(found)
    else:
        head = (struct.pack("<Ii7iB", 0x616B3432, version, *sizes.values(), tied)).ljust(256, b"\0")
        first = ["attention_norm", "ffn_norm", "norm", "tok_embeddings"]
        names = first + [name for name in found if name not in first and not name.startswith("freqs")]
    path.write_bytes(head + b"".join(found[name].tobytes() for name in names))
    return path


def write_tokenizer(path: Path, tokens: list[bytes], scores: list[float] | None = None) -> Path:
    """A tokenizer file of these tokens."""
    scores = [-float(index) for index in range(len(tokens))] if scores is None else scores
    content = b"".join(
        struct.pack("<fI", score, len(token)) + token for token, score in zip(tokens, scores, strict=True)
    )
    path.write_bytes(struct.pack("<I", max(map(len, tokens))) + content)
    return path


def some_tokens(n: int) -> list[bytes]:
    """What an export writes: three control tokens, the bytes, and words."""
    words = [b" ", b"a", b"b", b" a", b"ab", b" ab"] + [f" {index}".encode() for index in range(n)]
    return (
        [b"<unk>", b"\n<s>\n", b"\n</s>\n"] + [f"<0x{byte:02X}>".encode() for byte in range(256)] + words
    )[:n]


def planted(folder: Path, *, tied: bool = True, version: int = 0, tokens: bool = True) -> Path:
    """A model of random weights in `folder`, its tokenizer beside it."""
    if tokens:
        write_tokenizer(folder / "tokenizer.bin", some_tokens(SIZES["vocab_size"]))
    return write(folder / "model.bin", SIZES, tensors(SIZES, tied=tied), version)


def read_slowly(path: Path) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """A file of version 0, read with NumPy alone."""
    content = path.read_bytes()
    numbers = struct.unpack("<7i", content[:28])
    sizes = dict(zip(SIZES, numbers, strict=True))
    tied, sizes["vocab_size"] = sizes["vocab_size"] > 0, abs(sizes["vocab_size"])
    values, at, found = np.frombuffer(content, "<f4", offset=28), 0, {}
    for name, like in tensors(sizes, tied=tied).items():
        found[name] = values[at : at + like.size].reshape(like.shape)
        at += like.size
    assert at == len(values)
    return sizes, found


def logits(sizes: Mapping[str, int], w: Mapping[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """What run.c computes, position by position, (T, V) in float64: rotary angles on neighbouring features, and the rest of Llama."""
    d, heads, kv_heads = sizes["dim"], sizes["n_heads"], sizes["n_kv_heads"]
    size, shared = d // heads, heads // kv_heads
    w = {name: value.astype("f8") for name, value in w.items()}
    keys: list[list[np.ndarray]] = [[] for _ in range(sizes["n_layers"])]
    values: list[list[np.ndarray]] = [[] for _ in range(sizes["n_layers"])]
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
                mine, theirs = (
                    slice(head * size, (head + 1) * size),
                    slice(head // shared * size, (head // shared + 1) * size),
                )
                scores = np.array([q[mine] @ key[theirs] for key in keys[layer]]) / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                mixed[mine] = sum(
                    weight * value[theirs] for weight, value in zip(weights, values[layer], strict=True)
                )
            x = x + w["attention.wo"][layer] @ mixed
            y = _norm(x, w["ffn_norm"][layer])
            gate, up = w["feed_forward.w1"][layer] @ y, w["feed_forward.w3"][layer] @ y
            x = x + w["feed_forward.w2"][layer] @ (gate / (1 + np.exp(-gate)) * up)
        out.append(w.get("output", w["tok_embeddings"]) @ _norm(x, w["norm"]))
    return np.array(out)


def encode(text: str, pieces: list[bytes], scores: list[float]) -> list[int]:
    """run.c's encode with the first token: a space before, bytes for what is unknown, then the best pair again and again."""
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


def _norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return weight * x / np.sqrt((x * x).mean() + 1e-5)


def _rotate(x: np.ndarray, position: int, size: int) -> np.ndarray:
    """Feature 2i with 2i + 1 of each head, by position / 10000^(2i / size)."""
    out = x.copy()
    for i in range(0, len(x), 2):
        angle = position / 10000.0 ** ((i % size) / size)
        out[i] = x[i] * np.cos(angle) - x[i + 1] * np.sin(angle)
        out[i + 1] = x[i] * np.sin(angle) + x[i + 1] * np.cos(angle)
    return out
