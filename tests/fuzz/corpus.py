"""Small valid files of every format that uncone reads: what the mutations begin with."""

import gzip
import json
import lzma
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.fuzz.records import examples
from tests.fuzz.states import add_states
from tests.fuzz.tables import add_tables
from tests.gguf_files import gguf, write_gguf
from tests.matrices import gaussian
from uncone import Moments, transforms

N, D = 41, 8


@dataclass(frozen=True)
class Seed:
    """A valid file, or a folder of them: its reader, the file that is opened, and the matrices in it ("" alone)."""

    reader: str
    folder: Path
    opened: str
    parts: tuple[str, ...] = ("",)

    @property
    def files(self) -> list[Path]:
        """What is mutated: each file in the folder."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())


def rows(dtype: str = "float32") -> np.ndarray:
    return (gaussian(N, D, dtype=torch.float64) + 0.5).numpy().astype(dtype)


def make(root: Path) -> list[Seed]:
    """Write all of them under `root`, each in a folder of its own."""
    seeds: list[Seed] = []

    def add(reader: str, opened: str, write: Callable[[Path], object], parts: tuple[str, ...] = ("",)) -> None:
        folder = root / f"{reader.replace(' ', '_')}_{len(seeds)}"
        folder.mkdir(parents=True)
        write(folder / opened if opened else folder)
        seeds.append(Seed(reader, folder, opened, parts))

    for add_some in (_arrays, _tensors, _words, _parquet, _models, _texts, add_tables, add_states):
        add_some(add)
    for number, (kind, text) in enumerate(examples().items()):
        add("record", f"{number}.json", lambda path, text=text: path.write_text(text), (kind,))
    for made in _transformations():
        add("transformation", "t.safetensors", made.save)
    add("moments", "m.safetensors", Moments.of(torch.from_numpy(rows())).save)
    return seeds


Add = Callable[..., None]


def _arrays(add: Add) -> None:
    for dtype in ("float32", "float64", "float16", ">f4"):
        add("npy", "x.npy", lambda path, dtype=dtype: np.save(path, rows(dtype)))
    add("npy", "x.npy", lambda path: np.save(path, np.asfortranarray(rows())))
    for write in (np.savez, np.savez_compressed):
        add("npz", "x.npz", lambda path, write=write: write(path, rows()))
        three = {"a": rows(), "b": rows("float64"), "n": np.arange(3)}
        add("npz", "x.npz", lambda path, write=write, three=three: write(path, **three), ("a", "b"))
        for ids in (np.arange(N), np.array([f"id{i}" for i in range(N)])):
            add("npz", "x.npz", lambda path, write=write, ids=ids: write(path, a=rows(), ids=ids), ("a",))


def _tensors(add: Add) -> None:
    x = torch.from_numpy(rows())
    many = {"a.weight": x, "b.weight": x.bfloat16(), "c": x.half(), "bias": x[0].clone()}
    named = ("a.weight", "b.weight", "c")
    add("safetensors", "x.safetensors", lambda path: save_file({"x": x}, path))
    add("safetensors", "x.safetensors", lambda path: save_file(many, path, metadata={"format": "pt"}), named)
    nested = {"model": many, "step": 3, "name": "x", "tied": x.t()}
    for zipped in (True, False):
        for kept, parts in ((x, ("",)), (many, named), (nested, ("model.a.weight",))):
            add("checkpoint", "x.pt", partial(torch.save, kept, _use_new_zipfile_serialization=zipped), parts)
    add("checkpoint", "pytorch_model.bin", lambda path: torch.save(many, path), named)


def _words(add: Add) -> None:
    x = rows()
    lines = "".join(f"w{i} {' '.join(f'{value:.6g}' for value in row)}\n" for i, row in enumerate(x.tolist()))
    headed = f"{N} {D}\n{lines}"
    add("words text", "x.vec", lambda path: path.write_text(headed))
    add("words text", "x.txt", lambda path: path.write_text(lines))
    add("words text", "x.vec.gz", lambda path: path.write_bytes(gzip.compress(headed.encode(), mtime=0)))
    lines_of_bytes = (f"w{i} ".encode() + row.astype("<f4").tobytes() + b"\n" for i, row in enumerate(x))
    binary = f"{N} {D}\n".encode() + b"".join(lines_of_bytes)
    add("words binary", "x.bin", lambda path: path.write_bytes(binary))


def _parquet(add: Add) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    x = rows()
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), D)
    lists = pa.array(list(x))
    named = {"id": pa.array([f"r{i}" for i in range(N)]), "x": lists}
    for columns, options in (
        ({"id": pa.array(range(N)), "x": fixed}, {"row_group_size": 30}),
        ({"x": fixed}, {}),
        ({"x": lists}, {"use_dictionary": False}),
        (named, {"compression": "zstd", "row_group_size": 10}),
        ({"x": pa.array(list(x.astype("float64")))}, {"compression": "gzip", "data_page_version": "2.0"}),
        ({"x": fixed}, {"compression": "none", "use_dictionary": False, "data_page_size": 64}),
    ):
        add("parquet", "x.parquet", lambda path, c=columns, o=options: pq.write_table(pa.table(c), path, **o))


def _models(add: Add) -> None:
    x, kinds = rows(), gguf.GGMLQuantizationType
    wide = np.concatenate([x] * 4, axis=1)
    tokens = [f"t{i}" for i in range(N)]
    eight = {"token_embd.weight": (gguf.quants.quantize(wide, kinds.Q8_0), kinds.Q8_0)}
    write = partial(write_gguf, tokens=tokens, keys={"llama.block_count": 2})
    for tensors in ({"token_embd.weight": (x, None), "output.weight": (x.astype("float16"), None)}, eight):
        add("gguf", "x.gguf", lambda path, tensors=tensors: write(path, tensors), tuple(tensors))
    llama = partial(_hf, architecture="LlamaForCausalLM", kind="llama", tie_word_embeddings=False)
    untied, bert = {"model.embed_tokens.weight": 1, "lm_head.weight": 2}, {"bert.embeddings.word_embeddings.weight": 1}
    add("model", "", lambda path: _hf(path, "GPT2LMHeadModel", "gpt2", {"wte.weight": 1}), ("input",))
    add("model", "", lambda path: llama(path, tensors=untied), ("input", "head"))
    add("model", "", lambda path: _hf(path, "BertForMaskedLM", "bert", bert), ("input",))
    add("model", "", _sentence, ("input",))


def _hf(folder: Path, architecture: str, kind: str, tensors: dict[str, int], **config: object) -> None:
    sizes = {"hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    gpt2 = {"n_embd": D, "n_layer": 1, "n_head": 2}
    written = {"architectures": [architecture], "model_type": kind, "max_position_embeddings": 16, "vocab_size": N}
    written |= {"torch_dtype": "float32", "bos_token_id": 0, "eos_token_id": [1], "id2label": {"0": "a"}}
    written |= (gpt2 if kind == "gpt2" else sizes) | config
    (folder / "config.json").write_text(json.dumps(written))
    save_file({name: torch.from_numpy(rows()) * times for name, times in tensors.items()}, folder / "model.safetensors")
    _tokenizer(folder)


def _tokenizer(folder: Path) -> None:
    Tokenizer(WordLevel({f"w{i}": i for i in range(N)}, unk_token="w0")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"unk_token": {"content": "w0"}, "model_max_length": 16}')
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}')


def _sentence(folder: Path) -> None:
    inner = folder / "0_Transformer"
    inner.mkdir()
    _hf(inner, "BertModel", "bert", {"embeddings.word_embeddings.weight": 1})
    listed = [{"idx": 0, "name": "0", "path": inner.name, "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(listed))
    (inner / "sentence_bert_config.json").write_text('{"max_seq_length": 16, "do_lower_case": false}')


def _texts(add: Add) -> None:
    judged = [(f"id{i}", f"id{i + 1}", i % 2) for i in range(30)]
    tabbed = "".join(f"{a}\t{b}\t{rank}\n" for a, b, rank in judged)
    texts = (
        ("counts", "c.tsv", "id\ttoken\tcount\n" + "".join(f"{i}\tw{i}\t{i * i}\n" for i in range(N))),
        ("counts", "c.tsv", "token\tcount\n" + "".join(f"w{i}\t{i * i}\n" for i in range(N))),
        ("pairs", "p.tsv", f"a\tb\tlabel\n{tabbed}"),
        ("judgements", "q.txt", "".join(f"{a} 0 {b} {rank}\n" for a, b, rank in judged)),
        ("judgements", "q.tsv", f"query-id\tcorpus-id\tscore\n{tabbed}"),
        (
            "judgements",
            "q.jsonl",
            "".join(f'{{"qid": "{a}", "docid": "{b}", "rel": {rank}}}\n' for a, b, rank in judged),
        ),
        ("ids", "i.txt", "".join(f"id{i}\n" for i in range(N))),
    )
    for reader, name, text in texts:
        add(reader, name, lambda path, text=text: path.write_text(text))
    add("counts", "c.npy", lambda path: np.save(path, np.arange(N)))
    lines = "".join(f"a sentence {i}\nanother one {i}\nü and {i} more\n" for i in range(12))
    for name, pack in (("t.txt", bytes), ("t.txt.gz", gzip.compress), ("t.txt.xz", lzma.compress)):
        add("sentences", name, lambda path, pack=pack: path.write_bytes(pack(lines.encode())))
    add("tokens", "tokenizer.json", lambda path: _tokenizer(path.parent))
    add("tokens", "vocab.txt", lambda path: path.write_text("".join(f"w{i}\n" for i in range(N))))
    add("tokens", "vocab.json", lambda path: path.write_text(json.dumps({f"w{i}": i for i in range(N)})))


def _transformations() -> list[transforms.Affine | transforms.Normalized | transforms.Transformation]:
    x = torch.from_numpy(rows())
    plain = (transforms.Center(), transforms.ScaledCenter(), transforms.RemoveMeanDirection(), transforms.Standardize())
    tops = (transforms.AllButTheTop(2), transforms.AllButTheTop(2, centered=False))
    fitted = (*plain, *tops, transforms.Whiten("pca", 1.0, n_components=3), transforms.ClusterCenter(3, 2))
    return [
        transforms.Affine(x[0].double(), x[:D].double(), offset=x[1].double()),
        transforms.Normalized(transforms.Whiten().fit(x)),
        *(one.fit(x) for one in fitted),
    ]


def copied(seed: Seed, target: Path) -> Path:
    """A fresh copy of the seed's folder at `target`; the path to open."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(seed.folder, target)
    return target / seed.opened if seed.opened else target
