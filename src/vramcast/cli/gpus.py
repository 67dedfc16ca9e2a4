"""`vramcast gpus`."""

import json
from dataclasses import asdict

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, command


@command(
    "gpus",
    question="Which GPUs are known by name?",
    examples="vramcast gpus",
    then="vramcast predict ... --gpu NAME. For a GPU that is not in the list, give --memory 24GiB.",
    needs_arguments=False,
)
def gpus(as_json: options.Json = False) -> int:
    """List the GPUs vramcast knows.

    Exit codes: 0 done, 2 wrong usage.
    """
    if as_json:
        print(json.dumps([asdict(gpu) for gpu in vramcast.GPUS]))
        return ExitCode.DONE
    from vramcast.forecast.budget import budget_for
    from vramcast.reporting.sections import Section, size, table_of
    from vramcast.reporting.showing import show

    table = table_of(
        vramcast.GPUS,
        {
            "name": "name",
            "architecture": lambda gpu: "{} {}.{}".format(gpu.architecture, *gpu.capability),
            "memory": "total_bytes",
            "usable": lambda gpu: size(budget_for(gpu.name).capacity_bytes),
            "bandwidth": lambda gpu: f"{gpu.bandwidth_bytes_per_second / 1e12:.2f} TB/s",
            "bf16 TFLOP/s": lambda gpu: (
                f"{gpu.flops_per_second['bf16'] / 1e12:.0f}"
                if gpu.flops_per_second.get("bf16")
                else "none"
            ),
        },
        left=("name", "architecture"),
    )
    show([Section(title="GPUs", parts=[table])])
    return ExitCode.DONE
