"""`vramcast ARGUMENTS` in the tests' own process: the same main(), without the half second in which a new process starts.

What is about the process itself (signals, descriptors, what is imported, what is left running) runs `vramcast` as a process.
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
    except (
        SystemExit
    ) as error:  # any other exception is a traceback of vramcast's own, and fails the test
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
