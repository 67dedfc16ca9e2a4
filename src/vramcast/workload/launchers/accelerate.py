"""`accelerate launch [options] FILE`, with its configuration file."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.workload import launchers
from vramcast.workload.launch_line import Program
from vramcast.workload.launchers.torchrun import in_world


def understands(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) in ("accelerate", "accelerate-launch")


def read(words: Sequence[str], so_far: Program) -> Program:
    if os.path.basename(words[0]) == "accelerate":
        if len(words) < 2 or words[1] != "launch":
            raise WorkloadError(
                f"`accelerate {' '.join(words[1:2])}` starts no training.",
                "For example accelerate launch train.py.",
            )
        words = words[1:]
    given = _arguments(list(words[1:]))
    script = given.training_script
    if not script:
        raise WorkloadError(
            "accelerate launch starts no program.", "For example accelerate launch train.py."
        )
    command = ["-m", script] if given.module else [script]
    program = launchers.read_line(["python", *command, *given.training_script_args], so_far)
    variables, world_size, per_node = _environment(given)
    program = replace(program, environment={**variables, **program.environment})
    if world_size > 1 or given.multi_gpu or given.use_fsdp or given.use_deepspeed:
        program = in_world(program, world_size, per_node)
    return program


def _arguments(words: list[str]) -> Any:
    """The arguments as accelerate itself reads them, including its configuration file."""
    try:
        from accelerate.commands import launch
    except ImportError:
        raise WorkloadError(
            "`accelerate launch` needs the package accelerate, which is not installed here.",
            "Install it beside vramcast: pip install accelerate.",
        ) from None
    parser = launch.launch_command_parser()
    try:
        given = parser.parse_args(words)
    except SystemExit:
        raise WorkloadError(
            "accelerate launch does not understand its options (see above).",
            "See accelerate launch --help.",
        ) from None
    if given.config_file is not None and not Path(given.config_file).is_file():
        raise WorkloadError(
            f"There is no configuration file {given.config_file!r}.", "Correct --config_file."
        )
    try:
        given, defaults, has_precision = launch._validate_launch_command(given)
    except ValueError as problem:
        raise WorkloadError(
            f"accelerate launch refuses its options: {problem}", "Correct them."
        ) from None
    # as launch.launch_command() puts it: what --deepspeed_config_file leaves to this configuration
    fields = [*(defaults.deepspeed_config if defaults else {})]
    fields += ["mixed_precision"] * bool(has_precision)
    given.deepspeed_fields_from_accelerate_config = ",".join(fields)
    return given


def _environment(given: Any) -> tuple[dict[str, str], int, int]:
    """The variables that the launcher sets, the number of processes, and the processes per
    machine."""
    from accelerate.utils import launch

    world_size, machines = int(given.num_processes or 1), int(given.num_machines or 1)
    before = dict(os.environ)
    try:
        if given.use_deepspeed:
            _, variables = launch.prepare_deepspeed_cmd_env(given)
        elif world_size > 1 or given.multi_gpu or given.use_fsdp:
            variables = launch.prepare_multi_gpu_env(given)
        else:
            _, variables = launch.prepare_simple_launcher_cmd_env(given)
    finally:
        os.environ.clear()
        os.environ.update(before)
    changed = {name: value for name, value in variables.items() if before.get(name) != value}
    return changed, world_size, max(1, world_size // machines)
