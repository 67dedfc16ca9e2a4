"""`vramcast ARGUMENTS` in the tests' own process: the same main(), without starting a new process.

Tests of the process itself (signals, descriptors, imports, what is left running) start `vramcast`.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock


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
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
