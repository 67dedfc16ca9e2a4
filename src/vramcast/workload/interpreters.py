"""The interpreter that a launch line names: vramcast must be installed there too."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

from vramcast import __version__
from vramcast.errors import EnvironmentProblem
from vramcast.workload.launch_line import Program

# The modules that a worker imports, and the names of their packages.
NEEDED = {
    "vramcast": "vramcast",
    "torch": "torch",
    "numpy": "numpy",
    "scipy": "scipy",
    "msgspec": "msgspec",
    "rich": "rich",
    "pynvml": "nvidia-ml-py",
}
QUESTION = """
import importlib.util, json, sys
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
version = None
if "vramcast" not in missing:
    import vramcast
    version = vramcast.__version__
print(json.dumps([missing, version]))
"""
SECONDS = 60
# -u and -q change nothing here, and -i would keep a worker from ending
WITHOUT_EFFECT = "uqi"


def interpreter_of(program: Program) -> list[str]:
    """The interpreter and its flags. Empty if vramcast's own interpreter will do."""
    flags = [*filter(None, map(_that_matter, program.flags))]
    if program.interpreter is None and not flags:
        return []
    python = [program.interpreter or sys.executable, *flags]
    if program.interpreter is not None:
        check(tuple(python))
    return python


def _that_matter(flag: str) -> str:
    if not flag.startswith("-") or flag.startswith(("-W", "-X", "--")):
        return flag
    left = "".join(letter for letter in flag[1:] if letter not in WITHOUT_EFFECT)
    return f"-{left}" if left else ""


@cache
def check(python: Sequence[str]) -> None:
    name = python[0]
    question = [*python, "-P", "-c", QUESTION, *NEEDED]
    try:
        asked = subprocess.run(
            question, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL
        )
        missing, version = json.loads(asked.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise EnvironmentProblem(
            f"{name} did not say whether vramcast is installed there.",
            f"Make `{name} -c 'import vramcast'` work first.",
        ) from None
    install = f"Install it there: {name} -m pip install vramcast=={__version__}"
    if missing:
        lacks = ", ".join(NEEDED[one] for one in missing)
        raise EnvironmentProblem(
            f"The line is run by {name}, which lacks {lacks}.",
            f"{install}, or start the line with the python that vramcast is installed beside.",
        )
    if version != __version__:
        raise EnvironmentProblem(
            f"The line is run by {name}, which has vramcast {version}; this is {__version__}.",
            install,
        )
