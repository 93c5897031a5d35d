"""The scripts of experiments/stories260k, imported by name, and where the llama2.c model lies that they read."""

import importlib
import sys
from pathlib import Path

SOURCE = (Path(__file__).parents[1] / "../shared/data/models/stories260K").resolve()
_PLACE = str(Path(__file__).parents[1] / "experiments/stories260k")

sys.path.insert(0, _PLACE)
try:
    convert, run_c = importlib.import_module("convert"), importlib.import_module("run_c")
finally:
    sys.path.remove(_PLACE)
