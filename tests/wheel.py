"""What an installed wheel must do, run by the Python it was installed for: python tests/wheel.py README.md"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

import uncone

ROOT = Path(__file__).parent.parent


def main(readme: Path) -> None:
    package = Path(uncone.__file__).parent
    assert ROOT / "src" not in package.parents, f"expected the installed package, got {package}"
    kept = {path.relative_to(ROOT / "src/uncone") for path in (ROOT / "src/uncone").rglob("*") if path.is_file()}
    kept = {path for path in kept if "__pycache__" not in path.parts}
    missing = sorted(str(path) for path in kept if not (package / path).exists())
    assert not missing, f"expected every file of the source in the wheel, got none of {missing[:5]}"
    block = re.findall(r"^```python\n(.*?)^```$", readme.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    exec(compile(block, str(readme), "exec"), {"__name__": "readme"})
    with tempfile.TemporaryDirectory() as folder:
        numpy.save(f"{folder}/x.npy", numpy.random.default_rng(0).normal(0.5, 1, (2000, 32)).astype("float32"))
        command = Path(sys.executable).with_name("uncone")
        for options in (
            ["--version"],
            ["doctor"],
            ["diagnose", f"{folder}/x.npy", "--brief", "--html", f"{folder}/x.html"],
        ):
            subprocess.run([command, *options], check=True)
        assert Path(folder, "x.html").stat().st_size > 10_000


if __name__ == "__main__":
    main(Path(sys.argv[1]))
