"""Looking needs no torch: where it is not installed every source is read and judged; where it is, it is not loaded.

This file itself imports none, so that it runs in an environment of the core alone.
"""

import json
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

V, D = 120, 8
X = np.random.default_rng(0).standard_normal((2 * V, D), dtype=np.float32)
TABLE, HEAD = X[:V], X[V:]
HIDDEN = "import sys\nsys.modules['torch'] = None\n"
"""Any import of torch then fails as where it is not installed."""


def _model(folder: Path, architecture: str, tensors: dict[str, np.ndarray], **settings: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "vocab_size": V, **settings}))
    (folder / "vocab.txt").write_text("".join(f"t{i}\n" for i in range(V)))
    save_file(tensors, folder / "model.safetensors")
    return folder


def _sentence_transformers(folder: Path) -> Path:
    folder.mkdir()
    kind = "sentence_transformers.models.StaticEmbedding"
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))
    save_file({"embedding.weight": TABLE}, folder / "model.safetensors")
    return folder


def _adapter(folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    save_file({"base_model.model.lm_head.weight": HEAD}, folder / "adapter_model.safetensors")
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One of each kind."""
    folder = tmp_path_factory.mktemp("sources")
    np.save(folder / "x.npy", X)
    np.savez_compressed(folder / "x.npz", x=X.astype(np.float64))
    save_file({"x": X.astype(np.float16)}, folder / "x.safetensors")
    rows = [f"w{i} {' '.join(map(str, row.tolist()))}\n" for i, row in enumerate(X)]
    (folder / "x.vec").write_text(f"{len(X)} {D}\n{''.join(rows)}")
    files = [folder / f"x.{ending}" for ending in ("npy", "npz", "safetensors", "vec")]
    if find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table({"v": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X.ravel()), D)})
        pyarrow.parquet.write_table(table, folder / "x.parquet")
        files.append(folder / "x.parquet")
    if find_spec("gguf"):
        from tests.gguf_files import write_gguf

        tensors = {"token_embd.weight": (TABLE, None), "output.weight": (HEAD, None)}
        files.append(write_gguf(folder / "m.gguf", tensors, tokens=[f"t{i}" for i in range(V)]))
    tables = {"model.embed_tokens.weight": TABLE, "lm_head.weight": HEAD}
    untied = {"model_type": "llama", "tie_word_embeddings": False, "hidden_size": TABLE.shape[1]}
    return [
        *files,
        _model(folder / "tied", "GPT2LMHeadModel", {"wte.weight": TABLE}, model_type="gpt2"),
        _model(folder / "untied", "LlamaForCausalLM", tables, **untied),
        _sentence_transformers(folder / "static"),
        _adapter(folder / "adapter"),
    ]


def _run(code: str, *arguments: object) -> str:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("before", [HIDDEN, "import sys\n"], ids=["not installed", "installed"])
def test_every_kind_of_source_is_diagnosed(sources: list[Path], before: str) -> None:
    code = """
        import uncone
        from uncone.cli import main
        for source in sys.argv[1:]:
            d = uncone.diagnose(source, neighbours=True)
            assert all(m.value is not None for s in d.subjects for m in s.measurements if m.name == "isoscore"), source
            assert set(d.versions) == {"uncone", "numpy"}
            main(["diagnose", source, "--html", source + ".html"])
            assert sys.modules.get("torch") is None, source
    """
    _run(before + textwrap.dedent(code), *sources)


@pytest.mark.parametrize("before", [HIDDEN, "import sys\n"], ids=["not installed", "installed"])
def test_what_looks_at_vectors_needs_no_torch(tmp_path: Path, before: str) -> None:
    code = """
        import numpy as np
        import uncone
        from pathlib import Path
        folder = Path(sys.argv[1])
        x = np.random.default_rng(0).normal(size=(300, 8)).astype("f4") + 1
        np.save(folder / "x.npy", x)
        first, second = uncone.diagnose(x), uncone.diagnose(x - x.mean(0))
        assert uncone.compare([first, second]).verdict
        assert uncone.check(first, max={"mean_cosine": 1.0}).ok
        for method in ("center", "all_but_the_top_2", "whiten"):
            uncone.repair(folder / "x.npy", folder / f"{method}.npy", method=method)
        assert uncone.calibrate(x, queries=x[:50]).threshold(0.01) > 0
        assert "<html" in uncone.report.to_html(first)
        assert uncone.measure.all(x)["isoscore"].value > 0
        assert uncone.transforms.Center().fit(x).transform(x).shape == x.shape
        assert sys.modules.get("torch") is None
    """
    _run(before + textwrap.dedent(code), tmp_path)


def test_every_command_that_looks_runs_from_end_to_end(tmp_path: Path) -> None:
    """Each as a user types it, with a file it writes."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    np.save(tmp_path / "x.npy", X + 0.5)
    for step in (1, 2):
        _model(tmp_path / f"checkpoint-{step}", "GPT2LMHeadModel", {"wte.weight": step * TABLE}, model_type="gpt2")
    tokenizer = Tokenizer(WordLevel({f"t{i}": i for i in range(V)}, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "checkpoint-1" / "tokenizer.json"))
    (tmp_path / "text.txt").write_text(" ".join(f"t{word}" for word in np.random.default_rng(1).integers(1, V, 3000)))
    (tmp_path / "curves.csv").write_text("step,value\n" + "".join(f"{step},{1 / step}\n" for step in range(1, 40)))
    runs = [(10.0**n, 10.0**t) for n in (7, 7.5, 8, 9) for t in (9, 10, 11)]
    law = "".join(f"m,{n},{t},{1.7 + 400 / n**0.34 + 400 / t**0.28}\n" for n, t in runs)
    (tmp_path / "runs.csv").write_text("model,n,t,loss\n" + law)
    commands = """
        diagnose x.npy --json d.json --html d.html
        compare d.json d.json --html c.html
        check d.json --max mean_cosine=1
        calibrate x.npy --scores 0.5 --json k.json
        repair x.npy y.npy --method center
        report d.json --markdown d.md
        measures mean_cosine
        count checkpoint-1 text.txt --save counts.npy
        saturation curves curves.csv --json s.json
        saturation law runs.csv
        saturation checkpoints checkpoint-1 checkpoint-2 --out spectra.jsonl
        saturation contexts text.txt --tokenizer checkpoint-1
    """
    code = """
        import os
        from uncone.cli import main
        os.chdir(sys.argv[1])
        for command in sys.argv[2].strip().splitlines():
            main(command.split())
            assert sys.modules.get("torch") is None, command
    """
    _run(HIDDEN + textwrap.dedent(code), tmp_path, commands)
    for name in ("d.json", "d.html", "c.html", "k.json", "y.npy", "d.md", "counts.npy", "s.json", "spectra.jsonl"):
        assert (tmp_path / name).stat().st_size, name


def test_what_needs_torch_names_the_extra() -> None:
    calls = ["attach", "RareTokenGate", "linear_cross_entropy", "evaluate('x', task='sts')"]
    calls += ["select_repair('x', task='sts')", "center_head('m', 'out')", "repair_tokens('m', 'out')"]
    code = """
        import uncone
        for call in sys.argv[1:]:
            try:
                eval(f"uncone.{call}")
            except uncone.InputError as error:
                name = call.partition("(")[0]
                assert str(error) == f"uncone.{name} needs torch, got none: pip install 'uncone[torch]'", error
            else:
                raise SystemExit(f"no error of {call}")
    """
    _run(HIDDEN + textwrap.dedent(code), *calls, "examine_head('m', 't.txt')")


def test_a_command_and_a_file_that_need_torch_name_the_extra(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"PK\x03\x04" + bytes(40))
    np.save(tmp_path / "x.npy", X)
    code = """
        from uncone.cli import main
        try:
            main(sys.argv[1:])
        except SystemExit as ended:
            assert ended.code == 1
    """
    for arguments in (["evaluate", "--task", "wordsim", tmp_path / "x.npy"], ["diagnose", tmp_path / "x.pt"]):
        command = [sys.executable, "-c", HIDDEN + textwrap.dedent(code), *map(str, arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "needs torch" in done.stderr
        assert "pip install 'uncone[torch]'" in done.stderr
