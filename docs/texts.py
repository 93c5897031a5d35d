"""List every text of uncone that a user may read: python docs/texts.py [WORD...]

With words, only the texts that contain one of them. A text is a string of the code with a space in it, as file, line and
words; what a program fills in is shown as {}. Docstrings are in the API page.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the words of each text of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts, docstrings = set[ast.AST](), set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.add(node.value)
        if isinstance(node, ast.JoinedStr):
            parts |= {part for value in node.values for part in ast.walk(value)}
    for node in ast.walk(tree):
        if node in docstrings or node in parts:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        else:
            continue
        if re.search(r"[A-Za-z]{2,} [A-Za-z{]", text):
            yield node.lineno, " ".join(text.split())


def main(words: list[str]) -> None:
    """Print them."""
    sought = re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE) if words else None
    for path in sorted((ROOT / "src").rglob("*.py")):
        found = (one for one in texts(path) if not sought or sought.search(one[1]))
        sys.stdout.writelines(f"{path.relative_to(ROOT)}:{line}: {text}\n" for line, text in found)


if __name__ == "__main__":
    main(sys.argv[1:])
