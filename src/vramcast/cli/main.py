"""The command line: one short file a command; this one is the only place that prints errors and chooses exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vramcast.cli.progress import plain_errors
from vramcast.errors import VramcastError

app = typer.Typer(
    name="vramcast",
    help="Forecast a PyTorch training run before it runs: how much GPU memory it takes, and why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        from vramcast import __version__

        print(__version__)
        raise typer.Exit


@app.command(no_args_is_help=True)
def predict(
    workload: Annotated[str, typer.Argument(help="file.py:function, package.module:function, or a registered name.")],
    knobs: Annotated[list[str] | None, typer.Argument(help="Knobs of the workload as key=value.")] = None,
    gpu: Annotated[str | None, typer.Option(help="The GPU to predict for (see `vramcast gpus`).")] = None,
    memory: Annotated[str | None, typer.Option(help="The allocator's budget, for example 24GiB.")] = None,
    batch_sizes: Annotated[str | None, typer.Option(help="Predict many batch sizes: 1-64, 4-32:4 (every fourth) or 8,16,32.")] = None,
    allocator: Annotated[str | None, typer.Option(help="Allocator settings, as in PYTORCH_ALLOC_CONF (default: that variable).")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds after which the simulation is stopped.")] = 300.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")] = False,
) -> None:
    """Predict the GPU memory of one training step, with no GPU.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 it does not fit.
    """
    from vramcast.cli.predict import run

    raise typer.Exit(run(workload, knobs or [], gpu, memory, batch_sizes, allocator, timeout, as_json))


@app.command()
def gpus(as_json: Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")] = False) -> None:
    """List the GPUs vramcast knows."""
    from vramcast.cli.gpus import run

    run(as_json)


def main() -> None:
    try:
        app()
    except VramcastError as error:
        plain_errors(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # whoever read the output has seen enough
        sys.stderr.close()
        sys.exit(0)
