"""`vramcast calibrate`."""

from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, assignments, command, say
from vramcast.cli.progress import progress_display
from vramcast.errors import UsageError


@command(
    "calibrate",
    question="How much memory do CUDA's libraries take on the GPU here?",
    examples="""
    vramcast calibrate
    vramcast calibrate train.py:build batch_size=8
    vramcast calibrate --host
    """,
    then="predict again. Predictions find the table by themselves, also on machines you copy "
    "it to.",
    needs_arguments=False,
)
def calibrate(
    workload: Annotated[
        str | None,
        typer.Argument(help="Measure the kernels of this workload (default: common layers)."),
    ] = None,
    knobs: options.Knobs = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder of the table (default: vramcast's cache, where predictions look first)."
        ),
    ] = None,
    host: Annotated[
        bool,
        typer.Option("--host", help="Measure this machine's CPU instead. Needs no GPU."),
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Measure what GPU libraries allocate behind torch's back on the GPU here, or with --host how
    fast this machine launches kernels, for better predictions.

    Exit codes: 0 done, 1 failed, 2 wrong usage.
    """
    if host:
        return _calibrate_host(workload, out, as_json)
    with progress_display() as progress:
        table, path = vramcast.calibrate(
            workload, out=out, progress=progress, knobs=assignments(knobs)
        )
    if as_json:
        print(table.to_json())
    else:
        from vramcast.reporting.sections import Section, facts, size
        from vramcast.reporting.showing import show

        sizes = {
            "process without its tensors (context, kernels)": table.process_bytes,
            "memory that the GPU has less in all": table.device_bytes,
            "more with flash attention or cuDNN": table.libraries_bytes,
            "more with matrix factorisations": table.solver_bytes,
            "cuBLAS workspace, each thread": table.gemm_workspace_bytes,
            "cuBLASLt workspace": table.gemm_lt_workspace_bytes,
        }
        rows = {name: size(num_bytes) for name, num_bytes in sizes.items()}
        rows["convolutions known"] = str(len(table.convolutions))
        title = f"Measured on {table.gpu} under torch {table.torch_version}"
        show([Section(title="GPU libraries", parts=[facts(title, rows)])])
    say(f"Written to {path}")
    return ExitCode.DONE


def _calibrate_host(workload: str | None, out: str | None, as_json: bool) -> int:
    if workload is not None:
        raise UsageError(
            f"--host measures the machine, not {workload}.", "Leave the workload or --host out."
        )
    with progress_display() as progress:
        speed, path = vramcast.calibrate_host(out=out, progress=progress)
    if as_json:
        print(speed.to_json())
    else:
        print(
            f"A small step takes {1e3 * speed.step_seconds:.2f} ms of {speed.machine} under Python "
            f"{speed.python_version} and torch {speed.torch_version}.\n"
            "The host's part of predicted times now holds for this machine. It is an estimate: no "
            "kernel was launched. Remove the file to go back to the machines that were measured."
        )
    say(f"Written to {path}")
    return ExitCode.DONE
