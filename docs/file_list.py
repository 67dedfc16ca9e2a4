"""The source files as a list: each with the first sentence of what it says it is for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from blocks import ROOT


def the_files() -> str:
    """The list as it stands in docs/files.md."""
    lines = []
    for package in ("vramcast", "vramcast_zoo"):
        lines.append(f"src/{package}/")
        lines += _tree(ROOT / "src" / package, 1)
    return "\n```text\n" + "\n".join(lines) + "\n```\n\n"


def _tree(folder: Path, depth: int) -> list[str]:
    lines = []
    files = [
        path for path in folder.iterdir() if path.suffix in (".py", ".cpp", ".h") and purpose(path)
    ]
    for path in sorted(files, key=lambda path: (path.name != "__init__.py", path.name)):
        lines.append(f"{'  ' * depth + path.name:<32} {purpose(path)}")
    for child in sorted(
        path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"
    ):
        inside = _tree(child, depth + 1)
        lines += [f"{'  ' * depth}{child.name}/", *inside] if inside else []
    return lines


def purpose(path: Path) -> str:
    """The first sentence of the docstring, or of the comment that a C++ file begins with."""
    text = path.read_text()
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        said = re.sub(r"^// ?", "", text.partition("\n#")[0], flags=re.MULTILINE)
    paragraph = " ".join(said.partition("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`])\. ", paragraph)[0].rstrip(".:")
