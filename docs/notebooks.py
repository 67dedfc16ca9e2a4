"""Runs the notebook of examples/ cell by cell, without Jupyter, and keeps what its cells print.

A cell that begins with `%%writefile NAME` is that file.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

from blocks import ROOT

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
COLUMNS = "100"


def run(folder: Path) -> list[str]:
    """What each cell of code prints."""
    names: dict[str, Any] = {"__name__": "notebook"}
    return [_run_cell(cell, folder, names) for cell in code_cells(_read())]


def shown() -> list[str]:
    """What the notebook says that each cell of code prints."""
    return ["".join(_printed(cell)) for cell in code_cells(_read())]


def fill(folder: Path) -> None:
    """Writes what the cells print into the notebook."""
    notebook = _read()
    for cell, text in zip(code_cells(notebook), run(folder), strict=True):
        lines = text.splitlines(keepends=True)
        cell["outputs"] = (
            [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
        )
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text())
    return found


def _printed(cell: dict[str, Any]) -> list[str]:
    return [line for output in cell["outputs"] for line in output["text"]]


def _run_cell(cell: dict[str, Any], folder: Path, names: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    if text.startswith("%%writefile "):
        first, _, rest = text.partition("\n")
        (folder / first.split()[1]).write_text(rest)
        return ""
    out = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        mock.patch.dict(os.environ, {"COLUMNS": COLUMNS}),
    ):
        exec(compile(text, "cell", "exec"), names)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
