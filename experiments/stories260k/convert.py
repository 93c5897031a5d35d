"""Make a Hugging Face directory of stories260K from its llama2.c file and tokenizer, and check its logits.

    python experiments/stories260k/convert.py SOURCE build/stories260K

SOURCE is the directory with stories260K.bin and tok512.bin. The layout of both files is that of karpathy/llama2.c, version 0.
"""

import argparse
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from run_c import logits
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

NAMES = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
SPECIAL = ("<unk>", "<s>", "</s>")
FIRST_BYTE = 3  # the ids of the 256 single bytes follow the three special tokens
IN_TRANSFORMERS = {
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
}
TEXT = "Once upon a time, there was a little girl named Lily. She loved to play outside with her dog."
CLOSE = 1e-4

Tensors = dict[str, np.ndarray[Any, Any]]


def shapes(sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """The tensors in the order of the file, by the names of llama2.c's training code; layers are stacked."""
    d, h, n, v = sizes["dim"], sizes["hidden_dim"], sizes["n_layers"], sizes["vocab_size"]
    size = d // sizes["n_heads"]
    kv, angles = size * sizes["n_kv_heads"], (sizes["seq_len"], size // 2)
    return {
        "tok_embeddings": (v, d),
        "attention_norm": (n, d),
        "attention.wq": (n, d, d),
        "attention.wk": (n, kv, d),
        "attention.wv": (n, kv, d),
        "attention.wo": (n, d, d),
        "ffn_norm": (n, d),
        "feed_forward.w1": (n, h, d),
        "feed_forward.w2": (n, d, h),
        "feed_forward.w3": (n, h, d),
        "norm": (d,),
        "freqs_cos": angles,
        "freqs_sin": angles,
        "output": (v, d),
    }


def read_model(path: Path) -> tuple[dict[str, int], Tensors]:
    """The sizes and the float32 tensors of a llama2.c file of version 0. Without "output" the head is the token table."""
    content = path.read_bytes()
    sizes = dict(zip(NAMES, struct.unpack_from("<7i", content), strict=True))
    tied, sizes["vocab_size"] = sizes["vocab_size"] > 0, abs(sizes["vocab_size"])
    values, at = np.frombuffer(content, "<f4", offset=28), 0
    tensors: Tensors = {}
    for name, shape in shapes(sizes).items():
        if name == "output" and tied:
            continue
        size = int(np.prod(shape))
        tensors[name] = values[at : at + size].reshape(shape)
        at += size
    if at != len(values):
        raise ValueError(f"expected {at} numbers in {path}, got {len(values)}: copy the file again")
    return sizes, tensors


def read_tokenizer(path: Path, n: int) -> tuple[list[bytes], list[float]]:
    """The bytes of each of `n` tokens, and its score: the pair of the higher score is merged first."""
    content, at = path.read_bytes(), 4
    pieces, scores = list[bytes](), list[float]()
    for _ in range(n):
        score, length = struct.unpack_from("<fI", content, at)
        pieces.append(content[at + 8 : at + 8 + length])
        scores.append(score)
        at += 8 + length
    if at != len(content):
        raise ValueError(f"expected {n} tokens in {path}, got more: give the tokenizer of the model")
    return pieces, scores


def to_model(sizes: dict[str, int], tensors: Tensors) -> Any:
    """The same model as transformers has it: features that are turned in pairs lie half a head apart there."""
    config = transformers.LlamaConfig(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["dim"],
        intermediate_size=sizes["hidden_dim"],
        num_hidden_layers=sizes["n_layers"],
        num_attention_heads=sizes["n_heads"],
        num_key_value_heads=sizes["n_kv_heads"],
        max_position_embeddings=sizes["seq_len"],
        rms_norm_eps=1e-5,
        rope_theta=10000.0,  # constants of run.c
        tie_word_embeddings="output" not in tensors,
        bos_token_id=1,
        eos_token_id=2,
    )
    state = {"model.embed_tokens.weight": tensors["tok_embeddings"], "model.norm.weight": tensors["norm"]}
    state["lm_head.weight"] = tensors.get("output", tensors["tok_embeddings"])
    size = sizes["dim"] // sizes["n_heads"]
    for here, there in IN_TRANSFORMERS.items():
        for layer, weight in enumerate(tensors[here]):
            if here in ("attention.wq", "attention.wk"):
                pairs = weight.reshape(-1, size // 2, 2, sizes["dim"])
                weight = pairs.swapaxes(1, 2).reshape(weight.shape)
            state[f"model.layers.{layer}.{there}.weight"] = weight
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    return model.eval()


def to_tokenizer(pieces: list[bytes], scores: list[float], longest: int) -> Any:
    """SentencePiece's BPE, with bytes for unknown characters, as Llama has it."""
    ids = {_spelled(index, piece): index for index, piece in enumerate(pieces)}
    merged = [piece for piece, index in ids.items() if index >= FIRST_BYTE and not _is_byte(index)]
    order = sorted(merged, key=lambda piece: (-scores[ids[piece]], ids[piece]))
    known = set(merged)
    splits = ((piece[:cut], piece[cut:]) for piece in order for cut in range(1, len(piece)))
    merges = [(left, right) for left, right in splits if left in known and right in known]
    own = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    own.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    own.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
    own.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    own.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=own,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=longest,
        clean_up_tokenization_spaces=False,
    )


def _is_byte(index: int) -> bool:
    return FIRST_BYTE <= index < FIRST_BYTE + 256


def _spelled(index: int, piece: bytes) -> str:
    """The token as SentencePiece spells it: the export wrote spaces for "▁", and line breaks around <s> and </s>."""
    if index < FIRST_BYTE:
        return SPECIAL[index]
    return f"<0x{index - FIRST_BYTE:02X}>" if _is_byte(index) else piece.decode().replace(" ", "▁")


def convert(source: Path, out: Path) -> float:
    """Write the model and the tokenizer of the directory `source` to `out`.

    Returns:
        The largest difference of a logit from what llama2.c's run.c computes, on a text of about thirty tokens.
    """
    sizes, tensors = read_model(source / "stories260K.bin")
    pieces, scores = read_tokenizer(source / f"tok{sizes['vocab_size']}.bin", sizes["vocab_size"])
    to_model(sizes, tensors).save_pretrained(out)
    to_tokenizer(pieces, scores, sizes["seq_len"]).save_pretrained(out)
    ids = transformers.AutoTokenizer.from_pretrained(out)(TEXT).input_ids
    model = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    with torch.no_grad():
        converted = model(torch.tensor([ids])).logits[0].double().numpy()
    return float(np.abs(converted - logits(sizes, tensors, ids)).max())


def main() -> None:
    """Convert and check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="the directory with stories260K.bin and tok512.bin")
    parser.add_argument("out", type=Path, help="the directory to write")
    given = parser.parse_args()
    difference = convert(given.source, given.out)
    if not difference <= CLOSE:
        raise SystemExit(f"expected the logits of run.c in {given.out}, got some that differ by {difference:.2g}")
    print(f"wrote {given.out}; its logits differ from those of run.c by at most {difference:.1e}")


if __name__ == "__main__":
    main()
