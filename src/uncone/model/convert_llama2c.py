"""From llama2.c to a directory that transformers opens: the same model, its rotary pairs stored the other way round."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch

from uncone.atomic import new_directory
from uncone.errors import InputError
from uncone.model.gguf import is_gguf
from uncone.model.llama2c import HEAD, TABLE, Llama2c, find_llama2c, is_llama2c, kind_of, open_llama2c
from uncone.model.llama2c_tokens import (
    BEGIN,
    END,
    SPACE,
    UNKNOWN,
    Pieces,
    byte_piece,
    find_tokenizer,
    read_tokenizer,
)
from uncone.rows.safetensors import Entry, header_bytes

_NORM_EPSILON, _ROPE_THETA = 1e-5, 10000.0  # constants of run.c, which no header holds
_BEGIN_ID, _END_ID = 1, 2
_LONGEST_PIECE = 1024  # a piece is looked up at each of its cuts
_AT_ONCE = 2**22  # bytes copied at a time
_NAMES = {
    "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj", "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj", "feed_forward.w3": "mlp.up_proj",
}  # fmt: skip


def to_hugging_face(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a llama2.c model as a Llama directory of Hugging Face: the same logits for the same tokens.

    The directory holds config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json, and opens
    with `AutoModelForCausalLM` and `AutoTokenizer` of transformers. llama2.c turns neighbouring features in pairs (0 with 1, 2 with 3)
    and transformers those half a head apart, so the rows of the query and key matrices are put in the other order. The constants
    that `run.c` has and no file holds are written out: 10000 as the base of the rotary angles, 1e-5 in the norms.

    Args:
        source: a llama2.c file of version 0 or 1 (float32), or the directory that holds one.
        out: the directory to write. It must not exist; it appears whole or not at all.
        tokenizer: its tokenizer file, where that is not tokN.bin (N tokens) or tokenizer.bin beside the model.

    Returns:
        The path `out`.

    Raises:
        InputError: no llama2.c model, no tokenizer of as many tokens, or `out` exists or cannot be written.
    """
    model = _open(Path(source))
    file = find_tokenizer(model.path, model.vocab_size) if tokenizer is None else Path(tokenizer)
    if file is None:
        raise InputError(
            f"expected a tokenizer beside {model.path}, tok{model.vocab_size}.bin or tokenizer.bin, got none: "
            "put the one it was trained with there, or name it with tokenizer=FILE"
        )
    pieces = read_tokenizer(file, model.vocab_size)
    _check_pieces(pieces, file)
    with new_directory(out) as directory:
        with open(directory / "model.safetensors", "wb") as handle:
            _write_tensors(handle, model)
        for name, content in (
            ("config.json", _config(model)),
            ("generation_config.json", {"bos_token_id": _BEGIN_ID, "eos_token_id": _END_ID}),
            ("tokenizer.json", _tokenizer(pieces)),
            ("tokenizer_config.json", _tokenizer_config(model)),
        ):
            (directory / name).write_text(
                json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
    return Path(out)


def _open(path: Path) -> Llama2c:
    if not path.exists():
        raise InputError(f"no file or folder {str(path)!r}: expected a llama2.c model")
    if path.is_dir():
        found = find_llama2c(path)
        if found is None:
            raise InputError(
                f"expected a folder with a llama2.c model, got {path} without one: give the .bin file"
            )
        return open_llama2c(found)
    if is_gguf(path):
        raise InputError(
            f"expected a llama2.c model, got the GGUF file {path}: transformers opens it itself, with gguf_file="
        )
    if not is_llama2c(path):
        raise InputError(
            f"expected a llama2.c model, a .bin file or the directory that holds one, got {path}, {kind_of(path)}: uncone converts nothing else"
        )
    return open_llama2c(path)


def _check_pieces(pieces: Pieces, file: Path) -> None:
    if pieces.no_text:
        raise InputError(
            f"expected tokens of UTF-8 in {file}, got {len(pieces.no_text)} of other bytes, the first with id {pieces.no_text[0]}: "
            "tokenizer.json holds text, and only the 256 tokens of single bytes can stand for other bytes"
        )
    if len(set(pieces.pieces)) < len(pieces.pieces):
        raise InputError(
            f"expected tokens that differ in {file}, got some twice: no tokenizer can be made of them"
        )
    if max(map(len, pieces.pieces)) > _LONGEST_PIECE:
        raise InputError(
            f"expected tokens of at most {_LONGEST_PIECE} characters in {file}, got longer ones: give another tokenizer"
        )
    if not all(map(math.isfinite, pieces.scores)):
        raise InputError(
            f"expected finite scores of tokens in {file}, got others: export the tokenizer again"
        )
    if tuple(pieces.pieces[:3]) != (UNKNOWN, BEGIN, END):
        raise InputError(
            f"expected the tokens {UNKNOWN}, {BEGIN}, {END} first in {file}, got {list(pieces.pieces[:3])!r}: no Llama has those"
        )


def _config(model: Llama2c) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": _BEGIN_ID, "eos_token_id": _END_ID, "head_dim": model.head_size, "hidden_act": "silu",
        "hidden_size": model.dim, "initializer_range": 0.02, "intermediate_size": model.hidden_dim,
        "max_position_embeddings": model.seq_len, "mlp_bias": False, "num_attention_heads": model.n_heads,
        "num_hidden_layers": model.n_layers, "num_key_value_heads": model.n_kv_heads, "pretraining_tp": 1,
        "rms_norm_eps": _NORM_EPSILON, "rope_theta": _ROPE_THETA, "tie_word_embeddings": model.tied, "torch_dtype": "float32",
        "use_cache": True, "vocab_size": model.vocab_size,
    }  # fmt: skip


def _named(model: Llama2c) -> Iterator[tuple[str, str]]:
    """The names in llama2.c and in Hugging Face of what both hold; the tables of angles are left out, as they are computed."""
    yield TABLE, "model.embed_tokens.weight"
    for layer in range(model.n_layers):
        for here, there in _NAMES.items():
            yield f"layers.{layer}.{here}.weight", f"model.layers.{layer}.{there}.weight"
    yield "norm.weight", "model.norm.weight"
    if not model.tied:
        yield HEAD, "lm_head.weight"


def _write_tensors(handle: BinaryIO, model: Llama2c) -> None:
    """safetensors, written tensor by tensor, so that no more than one attention matrix is in memory."""
    tensors = {there: model.tensors[here] for here, there in _named(model)}
    laid = ((name, Entry("F32", t.shape, t.start, t.stop)) for name, t in tensors.items())
    handle.write(header_bytes(laid, {"format": "pt"}))
    for here, _ in _named(model):
        if here.endswith(("attention.wq.weight", "attention.wk.weight")):
            handle.write(_half_apart(model, here).numpy().data)
        else:
            _copy(handle, model, here)


def _copy(handle: BinaryIO, model: Llama2c, name: str) -> None:
    entry = model.tensors[name]
    for start in range(entry.start, entry.stop, _AT_ONCE):
        content = bytearray(min(_AT_ONCE, entry.stop - start))
        model.source.read_into(start, memoryview(content))
        handle.write(content)


def _half_apart(model: Llama2c, name: str) -> torch.Tensor:
    """The rows of each head, first those of even number, then the odd ones: pairs 2i, 2i + 1 become i, i + head_size / 2."""
    entry = model.tensors[name]
    weight = torch.empty(entry.shape)
    model.source.read_into(entry.start, weight.view(torch.uint8).numpy().reshape(-1).data)
    pairs = weight.view(-1, model.head_size // 2, 2, model.dim)
    return pairs.transpose(1, 2).reshape(entry.shape)


def _tokenizer(pieces: Pieces) -> dict[str, Any]:
    """tokenizer.json of SentencePiece's BPE with bytes for unknown characters, as Llama has it."""
    special = [
        {
            "id": index,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, content in enumerate((UNKNOWN, BEGIN, END))
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": SPACE}, {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": BEGIN, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {BEGIN: {"id": BEGIN, "ids": [_BEGIN_ID], "tokens": [BEGIN]}},
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": UNKNOWN, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
            "vocab": {piece: index for index, piece in enumerate(pieces.pieces)}, "merges": _merges(pieces),
        },
    }  # fmt: skip


def _merges(pieces: Pieces) -> list[list[str]]:
    """Every way to put a piece together from two others, the pieces of the highest score first, as SentencePiece merges."""
    ids = {
        piece: index
        for index, piece in enumerate(pieces.pieces)
        if index > _END_ID and piece != byte_piece(index)
    }
    order = sorted(ids, key=lambda piece: (-pieces.scores[ids[piece]], ids[piece]))
    splits = ((piece[:cut], piece[cut:]) for piece in order for cut in range(1, len(piece)))
    return [[left, right] for left, right in splits if left in ids and right in ids]


def _tokenizer_config(model: Llama2c) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END, "unk_token": UNKNOWN,
        "clean_up_tokenization_spaces": False, "model_max_length": model.seq_len,
    }  # fmt: skip
