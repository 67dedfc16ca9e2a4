"""The command nvidia-smi, as a simulated program finds it: it answers for the simulated GPUs.

Run as a script, it has the facts in a file: `python nvidia_smi.py FACTS.json [ARGUMENTS...]`. It
imports nothing of vramcast, so that it starts at once.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Facts = Sequence[dict[str, Any]]  # of each GPU, by the names that --query-gpu has
NOT_KNOWN = "[N/A]"
UNITS = {
    **dict.fromkeys(("memory.total", "memory.used", "memory.free"), "MiB"),
    **dict.fromkeys(("utilization.gpu", "utilization.memory"), "%"),
    **dict.fromkeys(("power.draw", "power.limit"), "W"),
}
LINE = "+" + "-" * 77 + "+"


def facts(name: str, total_bytes: int, used_bytes: int, count: int, capability: str) -> Facts:
    total, used = total_bytes >> 20, used_bytes >> 20
    return [
        {
            "index": number,
            "count": count,
            "name": name,
            "gpu_name": name,
            "uuid": f"GPU-{number:032x}",
            "gpu_uuid": f"GPU-{number:032x}",
            "driver_version": "580.0",
            "compute_cap": capability,
            "memory.total": total,
            "memory.used": used,
            "memory.free": total - used,
            "utilization.gpu": 100,
            "utilization.memory": 100,
            "temperature.gpu": 40,
            "power.draw": 300,
            "power.limit": 300,
        }
        for number in range(count)
    ]


def put_command(folder: Path, gpus: Facts) -> None:
    """Writes the command and its facts into a new folder, and puts that before all others in
    PATH."""
    folder.mkdir(exist_ok=True)
    known = folder / "gpus.json"
    known.write_text(json.dumps(gpus))
    words = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(known)]
    command = folder / "nvidia-smi"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o755)
    os.environ["PATH"] = os.pathsep.join((str(folder), os.environ.get("PATH", os.defpath)))


def answer(words: Sequence[str], gpus: Facts) -> str:
    options = _options(words)
    chosen = next((options[name] for name in ("-i", "--id") if name in options), "")
    if chosen:
        gpus = [gpu for gpu in gpus if {str(gpu["index"]), gpu["uuid"]} & {*chosen.split(",")}]
        if not gpus:
            return "No devices were found\n"
    if "-L" in options or "--list-gpus" in options:
        return "".join(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})\n" for gpu in gpus)
    form = options.get("--format", "csv").split(",")
    asked = next((name for name in options if name.startswith("--query-")), "")
    if asked:  # about processes and others there is nothing to tell
        about = gpus if asked == "--query-gpu" else []
        return _rows(options[asked].split(","), about, form)
    if words and not words[0].startswith("-"):  # a command such as topo
        return ""
    return _page(gpus)


def _options(words: Sequence[str]) -> dict[str, str]:
    """`--name=value`, `--name value` and `--name`."""
    found = {}
    for word, following in zip(words, (*words[1:], ""), strict=False):
        name, _, value = word.partition("=")
        if name.startswith("-"):
            found[name] = value or ("" if following.startswith("-") else following)
    return found


def _rows(fields: Sequence[str], gpus: Facts, form: Sequence[str]) -> str:
    names = [field.strip() for field in fields]
    has_units = "nounits" not in form
    units = [UNITS.get(name, "") if has_units else "" for name in names]
    titles = [f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True)]
    lines = [] if "noheader" in form else [titles]
    for gpu in gpus:
        values = (str(gpu.get(name, NOT_KNOWN)) for name in names)
        lines.append([f"{v} {unit}".rstrip() for v, unit in zip(values, units, strict=True)])
    return "".join(", ".join(line) + "\n" for line in lines)


def _page(gpus: Facts) -> str:
    lines = [time.strftime("%a %b %e %H:%M:%S %Y"), LINE]
    driver = gpus[0]["driver_version"]
    lines += [
        f"| NVIDIA-SMI {driver}  Driver Version: {driver}  CUDA Version: 13.0".ljust(78) + "|"
    ]
    lines += [LINE]
    for gpu in gpus:
        memory = f"{gpu['memory.used']}MiB / {gpu['memory.total']}MiB"
        told = f"| {gpu['index']:>3}  {gpu['name']:<30} {memory:>24} {gpu['utilization.gpu']:>6}%"
        lines += [told.ljust(78) + "|", LINE]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(end=answer(sys.argv[2:], json.loads(Path(sys.argv[1]).read_text())))
