"""`vramcast ARGUMENTS` in the tests' own process: the same main(), without starting a new process.

Tests of the process itself (signals, descriptors, imports, what is left running) start `vramcast`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def vramcast(
    *arguments: str, folder: Path | None = None, columns: int = 80
) -> subprocess.CompletedProcess[str]:
    from vramcast.cli.main import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    before = os.getcwd()
    os.chdir(folder or before)
    try:
        with (
            mock.patch.object(sys, "argv", ["vramcast", *arguments]),
            mock.patch.dict(os.environ, COLUMNS=str(columns)),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main()
    # Any other exception would be a traceback for the user, and fails the test.
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        os.chdir(before)
    if "--json" in arguments and code in (0, 3):
        _check_schema(arguments[0], out.getvalue())
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def _check_schema(command: str, printed: str) -> None:
    """What tests print often, and is large, has tests of its own in docs/test_schemas.py."""
    schema = SCHEMAS / f"{command}.json"
    if command in ("predict", "max-batch", "plan"):
        return
    with contextlib.suppress(ImportError):
        from jsonschema import Draft202012Validator

        Draft202012Validator(json.loads(schema.read_text())).validate(json.loads(printed))
