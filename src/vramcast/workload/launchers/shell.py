"""Shell scripts: the script is not run, only the one line in it that starts the training."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from vramcast.errors import WorkloadError
from vramcast.workload import launchers
from vramcast.workload.launch_line import Program

STARTS_TRAINING = re.compile(
    r"\s*((?:\w+=(?:\"[^\"]*\"|'[^']*'|\S*)\s+)*(?:exec\s+)?(?:nohup\s+|time\s+)*"
    r"(?:python[\d.]*|torchrun|accelerate|deepspeed|uv|srun|mpirun)\s.*)"
)
SET = re.compile(r"\s*(export\s+)?([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S*)\s*$")
USED = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")
FOR_SLURM = re.compile(r"^#SBATCH\s+(.*)", re.MULTILINE)
MOST_LINES = 3


def understands(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) in ("bash", "sh", "zsh", "sbatch") or words[0].endswith(".sh")


def read(words: Sequence[str], so_far: Program) -> Program:
    if words[1:2] in (["-c"], ["-lc"], ["-ic"]) and len(words) > 2:
        return launchers.read_line(launchers.words_of_shell(words[2]), so_far)
    place = next((i for i, word in enumerate(words) if os.path.isfile(word)), None)
    if place is None:
        raise WorkloadError(
            f"There is no script in `{' '.join(words)}`.", "Name the script, or what it starts."
        )
    with open(words[place], errors="replace") as file:
        text = re.sub(r"\s*\\\n\s*", " ", file.read())
    exported, lines = _lines(text, words[place + 1 :])
    if len(lines) == 1 and not re.search(r"^\s*(cd|pushd|for|while)\s", text, re.MULTILINE):
        so_far = replace(so_far, environment={**exported, **so_far.environment})
        return launchers.read_line(launchers.words_of_shell(lines[0]), so_far)
    raise WorkloadError(
        f"A script of a shell ({' '.join(words)}) is not run.",
        "\n  vramcast ... -- ".join(
            ["Give the line in it that starts the training:", *lines[:MOST_LINES]]
        ),
    )


def _lines(text: str, arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The variables that the script exports, and the lines that may start the training, with the
    script's variables filled in."""
    values: dict[str, str] = {str(i): word for i, word in enumerate(arguments, 1)}
    exported: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return values.get(name, os.environ.get(name, match[3] or match[0]))

    every, lines = " ".join(arguments), []
    for line in text.splitlines():  # a variable may change between them
        if is_set := SET.match(line):
            export, name, given = is_set.groups()
            values[name] = USED.sub(value, given.strip("\"'"))
            if export:
                exported[name] = values[name]
        elif starts := STARTS_TRAINING.match(line):
            started = USED.sub(value, re.sub(r"\"?\$[@*]\"?", every, starts[1]))
            lines.append(started.removeprefix("exec ").strip())
    options = " ".join(FOR_SLURM.findall(text))
    return exported, [re.sub(r"^srun\b", f"srun {options}".strip(), line) for line in lines]
