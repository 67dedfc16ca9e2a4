"""The command line: one short file a command; this one is the only place that prints errors and chooses exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from vramcast.cli.lessons import LESSONS, START
from vramcast.cli.progress import plain_errors, prepare_output
from vramcast.errors import UsageError, VramcastError
from vramcast.text import printable

app = typer.Typer(
    name="vramcast",
    help="Forecast a PyTorch training run before it runs: how much GPU memory it takes, how long a step takes, and why.",
    epilog=START,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
INTERRUPTED = 130
CANNOT_BE_WRITTEN = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EBADF,
)  # the last: stdout is closed
WRONG_NAMES = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EROFS)


def command(name: str, *, asks: bool = True) -> Callable[[Any], Any]:
    """A command with what its --help teaches; without arguments it shows that help where it needs any (`asks`)."""
    lesson = LESSONS[name]
    return app.command(name, no_args_is_help=asks, short_help=lesson.question, epilog=lesson.epilog)


def _show_version(asked: bool) -> None:
    if asked:
        from vramcast import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None: ...


@command("predict")
def predict(
    workload: Annotated[
        str, typer.Argument(help="file.py:function, package.module:function, or a registered name.")
    ],
    knobs: Annotated[
        list[str] | None, typer.Argument(help="Knobs of the workload as key=value.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="The GPU to predict for (see `vramcast gpus`).")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="The allocator's budget, for example 24GiB.")
    ] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(help="Predict many batch sizes: 1-64, 4-32:4 (every fourth) or 8,16,32."),
    ] = None,
    allocator: Annotated[
        str | None,
        typer.Option(help="Allocator settings, as in PYTORCH_ALLOC_CONF (default: that variable)."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds after which the simulation is stopped.")
    ] = 300.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
    trace: Annotated[
        str | None,
        typer.Option(
            help="Keep every allocation in this folder: trace.json and a memory_viz snapshot."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over the files of an earlier --trace.")
    ] = False,
) -> None:
    """Predict the GPU memory and the time of a training step, with no GPU.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 it does not fit.
    """
    from vramcast.cli.predict import run

    raise typer.Exit(
        run(
            workload,
            knobs or [],
            gpu,
            memory,
            batch_sizes,
            allocator,
            timeout,
            as_json,
            trace,
            force,
        )
    )


@command("max-batch")
def max_batch(
    workload: Annotated[
        str, typer.Argument(help="file.py:function, package.module:function, or a name of the zoo.")
    ],
    knobs: Annotated[
        list[str] | None,
        typer.Argument(help="Knobs of the workload as key=value, without batch_size."),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="The GPU (see `vramcast gpus`).")] = None,
    memory: Annotated[
        str | None, typer.Option(help="The allocator's budget, for example 24GiB.")
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", help="Look no further than this size.")
    ] = None,
    multiple_of: Annotated[int, typer.Option(help="Only multiples of this.")] = 1,
    safety: Annotated[
        float, typer.Option(help="The fraction of the memory to leave free, for example 0.05.")
    ] = 0.0,
    global_batch: Annotated[
        int | None,
        typer.Option(help="Also give micro-batch and accumulation steps for this batch."),
    ] = None,
    confirm: Annotated[
        bool, typer.Option(help="Where there is a GPU: run the answer and the next size for real.")
    ] = True,
    allocator: Annotated[
        str | None,
        typer.Option(help="Allocator settings, as in PYTORCH_ALLOC_CONF (default: that variable)."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds after which the simulation is stopped.")
    ] = 300.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Find the largest batch size that fits: predicted without a GPU, confirmed with one.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not even the smallest fits.
    """
    from vramcast.cli.max_batch import run

    options = {
        "maximum": maximum,
        "multiple_of": multiple_of,
        "safety": safety,
        "global_batch": global_batch,
        "timeout": timeout,
    }
    raise typer.Exit(run(workload, knobs or [], gpu, memory, allocator, confirm, options, as_json))


@command("plan")
def plan(
    workload: Annotated[
        str, typer.Argument(help="file.py:function, package.module:function, or a registered name.")
    ],
    knobs: Annotated[
        list[str] | None, typer.Argument(help="Knobs of the workload as key=value.")
    ] = None,
    seq_lens: Annotated[
        str | None,
        typer.Option(help="Sequence lengths in rising order: 128,256,512 (the knob seq_len)."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="The GPUs to plan for, with commas (see `vramcast gpus`).")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="The allocator's budget on each, for example 24GiB.")
    ] = None,
    tokens_per_step: Annotated[
        int | None,
        typer.Option(help="Tokens in an optimizer step; what does not fit at once is accumulated."),
    ] = None,
    tokens: Annotated[str, typer.Option(help="Tokens to train on in all.")] = "1e9",
    safety: Annotated[
        float,
        typer.Option(
            help="The fraction of the memory to leave free, for fragmentation in long runs."
        ),
    ] = 0.05,
    allocator: Annotated[
        str | None,
        typer.Option(help="Allocator settings, as in PYTORCH_ALLOC_CONF (default: that variable)."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds after which a simulation is stopped.")
    ] = 300.0,
    out: Annotated[
        str | None,
        typer.Option(help="A folder for plan.json and a curriculum-GPU.yaml for each GPU."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over the plan in that folder.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Plan a batch for every sequence length and GPU: memory, what binds, time, and the curriculum they make.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 at some length not even one sample fits.
    """
    from vramcast.cli.plan import run

    options = {
        "seq_lens": seq_lens,
        "gpu": gpu,
        "memory": memory,
        "tokens_per_step": tokens_per_step,
        "tokens": tokens,
        "safety": safety,
        "allocator": allocator,
        "timeout": timeout,
        "force": force,
    }
    raise typer.Exit(run(workload, knobs or [], options, out, as_json))


@command("probe")
def probe(
    workload: Annotated[
        str, typer.Argument(help="file.py:function, package.module:function, or a registered name.")
    ],
    knobs: Annotated[
        list[str] | None, typer.Argument(help="Knobs of the workload as key=value.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="cuda, or cpu to run the same step without a GPU.")
    ] = "cuda",
    memory: Annotated[
        str | None,
        typer.Option(
            help="Cap the allocator, for example at 24GiB: a smaller card on a larger one."
        ),
    ] = None,
    warmup: Annotated[int, typer.Option(help="Steps before the measured ones.")] = 2,
    steps: Annotated[
        int, typer.Option(help="Steps to measure; the p95 gate is judged from 20 on.")
    ] = 20,
    allocator: Annotated[
        str | None,
        typer.Option(help="Allocator settings, as in PYTORCH_ALLOC_CONF (default: that variable)."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds after which the run is stopped.")] = 600.0,
    out: Annotated[
        str | None, typer.Option(help="The run's folder (default: a new one under runs/).")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over the run in that folder.")
    ] = False,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Keep every allocation: trace.json, and snapshot.pickle for memory_viz."
        ),
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(help="A configuration that vramcast tune wrote; knobs given beside it win."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Measure real training steps in a fresh process, and judge whether the run was sound.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 out of memory or not stable.
    """
    from vramcast.cli.probe import run

    raise typer.Exit(
        run(
            workload,
            knobs or [],
            device,
            memory,
            warmup,
            steps,
            allocator,
            timeout,
            out,
            force,
            trace,
            config,
            as_json,
        )
    )


@command("fit")
def fit(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of vramcast probe, or a CSV table of runs.")
    ],
    terms: Annotated[
        str | None,
        typer.Option(
            help="With commas: constant, per_sample, per_token, per_token_and_length, your own."
        ),
    ] = None,
    term: Annotated[
        list[str] | None,
        typer.Option(help="A term of your own: name=expression of knobs; may be given again."),
    ] = None,
    by: Annotated[str | None, typer.Option(help="One law for every value of this knob.")] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="Only say what the law gives here: key=value; may be given again."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON list on stdout, nothing else.")
    ] = False,
) -> None:
    """Fit a law for memory to measured runs, with the error each run has when it is left out.

    Exit codes: 0 done, 2 wrong usage or a question outside what was measured.
    """
    from vramcast.cli.fit import run

    raise typer.Exit(run(runs, terms, term or [], by, at or [], as_json))


@command("diff")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A trace.json, or a folder with one.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Line up two memory traces and show the first place where they differ.

    Exit codes: 0 they are the same, 2 wrong usage, 3 they differ.
    """
    from vramcast.cli.diff import run

    raise typer.Exit(run(a, b, as_json))


@command("tune")
def tune(
    workload: Annotated[
        str, typer.Argument(help="file.py:function, package.module:function, or a registered name.")
    ],
    knobs: Annotated[
        list[str] | None, typer.Argument(help="Knobs to begin with, as key=value.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help="Try only these, with commas; what changes the model must be named."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time for all of it, for example 20min; what is not begun by then is listed."
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="The GPU here, where its name is not recognised (see `vramcast gpus`)."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Cap the allocator, for example at 24GiB: a smaller card on a larger one."
        ),
    ] = None,
    target_steps: Annotated[
        int, typer.Option(help="Steps of a whole training run, to say how many days it takes.")
    ] = 200_000,
    device: Annotated[
        str, typer.Option(help="cuda, or cpu to try the settings without a GPU.")
    ] = "cuda",
    outlook: Annotated[bool, typer.Option(help="Predict what other GPUs would bring.")] = True,
    out: Annotated[
        str | None,
        typer.Option(help="The run's folder; with the same one again it goes on where it was."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Begin again where the folder holds a tune.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Which settings make the step fastest, which are not worth it, which fail, and why?

    Tries precision, attention, batch size, checkpointing, optimizers, torch.compile, CUDA graphs, allocator settings and more: each alone
    against the start in fresh processes, then those that helped on top of each other. Writes a log, and the configuration that came out.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing helped or the start does not fit.
    """
    from vramcast.cli.tune import run

    options = {
        "only": only,
        "budget": budget,
        "gpu": gpu,
        "memory": memory,
        "target_steps": target_steps,
        "device": device,
        "outlook": outlook,
        "force": force,
    }
    raise typer.Exit(run(workload, knobs or [], out, options, as_json))


@command("env", asks=False)
def env(
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Is this machine ready to train fast? GPU, driver, CUDA, Triton, compilers, allocator settings, and what to do about each.

    Exit codes: 0 nothing is in the way, 3 something is.
    """
    from vramcast.cli.env import run

    raise typer.Exit(run(as_json))


@command("bench")
def bench(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Names of the zoo, or file.py:function; each may be followed by knobs as key=value."
        ),
    ],
    protocol: Annotated[
        str, typer.Option(help="standard, timebox, or a file.toml with your own.")
    ] = "standard",
    data: Annotated[
        str | None, typer.Option(help="The file to train on (default: Python's own sources).")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Train for another number of steps than the protocol says.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Train every model with each of these: 1,2,3 (default: the protocol's)."),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            help="One model at several sizes: dim=512,768,1024; rank or depth is solved for."
        ),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(
            help="Of --sweep: the parameters that all have, as in 50M (default: the model's)."
        ),
    ] = None,
    respect_documents: Annotated[
        bool,
        typer.Option("--respect-documents", help="Samples stay within documents (0x1e ends one)."),
    ] = False,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Train on a Ray cluster, a GPU a trial: host:port, or auto."
        ),
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Seconds between two checkpoints.")
    ] = 60.0,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard", help="Losses for TensorBoard too, in the folders of the trials."
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            help="The run's folder; what has ended there is not trained again, the rest goes on."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Begin again where the folder holds these trials.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Train models under one fixed protocol, each in a process of its own.

    Exit codes: 0 done, 1 a trial failed, 2 wrong usage, 3 a model diverged.
    """
    from vramcast.cli.bench import run

    options = {
        "protocol": protocol,
        "data": data,
        "steps": steps,
        "respect_documents": respect_documents,
        "device": device,
        "ray": ray,
        "checkpoint_seconds": checkpoint_seconds,
        "tensorboard": tensorboard,
        "force": force,
    }
    raise typer.Exit(run(models, seeds, out, options, as_json, sweep, params))


@command("compare")
def compare(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of vramcast bench, or of single trials in one.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Say which model learned best under the same protocol, and whether the difference is real.

    Exit codes: 0 the best one is better, 2 wrong usage or not comparable, 3 not distinguishable.
    """
    from vramcast.cli.compare import run

    raise typer.Exit(run(runs, as_json))


@command("report")
def report(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders, or files with what a command printed with --json."),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="html, md or terminal (default: by the file's ending, else html)."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="The file, - is stdout (default: report.html in the folder)."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    figures: Annotated[
        str | None, typer.Option(help="Also write every chart into this folder, as SVG for papers.")
    ] = None,
) -> None:
    """Show what other commands recorded: one page with tables and figures, made from records alone.

    It takes predict, probe, max-batch, plan, fit, tune, bench, compare and accuracy. Nothing is run again.

    Exit codes: 0 done, 1 the file cannot be written, 2 wrong usage, or a record that cannot be read.
    """
    from vramcast.cli.report import run

    raise typer.Exit(run(runs, form, out, show, figures))


@command("accuracy", asks=False)
def accuracy(
    suite: Annotated[
        list[str] | None,
        typer.Option(help="open, varied, settings, hf or zoo; may be given again (default: all)."),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="The run's folder; what it already holds is not done again.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Compare with the measurements in this folder: needs no GPU.")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(help="Only this row; may be given again.")
    ] = None,
    peers: Annotated[
        bool, typer.Option(help="Also ask MemTracker, accelerate and 4 x parameters.")
    ] = True,
    figure: Annotated[
        str | None,
        typer.Option(help="Draw predicted against measured into this .svg, .png or .pdf."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Begin again where the folder holds a run.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Predict the workloads of a suite, measure them, and compare.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a promised accuracy was missed.
    """
    from vramcast.cli.accuracy import run

    raise typer.Exit(run(suite or [], out, against, row or [], peers, figure, force, as_json))


@command("calibrate", asks=False)
def calibrate(
    workload: Annotated[
        str | None,
        typer.Argument(help="Measure the kernels of this workload (default: common layers)."),
    ] = None,
    knobs: Annotated[
        list[str] | None, typer.Argument(help="Knobs of the workload as key=value.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="The table's folder (default: vramcast's cache, where predictions look first)."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
    ] = False,
) -> None:
    """Measure what GPU libraries allocate behind torch's back on the GPU here, for better predictions.

    Exit codes: 0 done, 1 failed, 2 wrong usage.
    """
    from vramcast.cli.calibrate import run

    raise typer.Exit(run(workload, knobs or [], out, as_json))


@command("gpus", asks=False)
def gpus(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")] = False,
) -> None:
    """List the GPUs vramcast knows.

    Exit codes: 0 done, 2 wrong usage.
    """
    from vramcast.cli.gpus import run

    run(as_json)


@command("zoo", asks=False)
def zoo(
    family: Annotated[
        str | None, typer.Argument(help="Only this family: e1, e5, e10, mamba2, ...")
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Argument(help="Sizes that are given, as key=value.")
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(
            help="A budget of parameters, for example 50M: find the size that is not given."
        ),
    ] = None,
    dim: Annotated[int | None, typer.Option(help="The same as dim=N.")] = None,
    depth: Annotated[int | None, typer.Option(help="The same as depth=N.")] = None,
    rank: Annotated[int | None, typer.Option(help="The same as rank=N.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else.")] = False,
) -> None:
    """List the models that come with vramcast, or find the size that meets a budget of parameters.

    Exit codes: 0 done, 2 wrong usage.
    """
    from vramcast.cli.zoo import run

    run(family, sizes or [], {"dim": dim, "depth": depth, "rank": rank}, params, as_json)


def main() -> None:
    prepare_output()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told
    except VramcastError as error:
        plain_errors(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _leave(0)  # whoever read the output has seen enough
    except OSError as problem:
        if problem.errno in WRONG_NAMES and problem.filename is not None:
            print(
                f"vramcast: {problem.strerror}: {printable(os.fsdecode(problem.filename))}",
                file=sys.stderr,
            )
            sys.exit(UsageError.exit_code)
        if problem.errno not in CANNOT_BE_WRITTEN:
            raise
        print(f"vramcast: The output cannot be written: {problem.strerror}.", file=sys.stderr)
        _leave(1)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer turns Ctrl-C into this without a word
            print("Interrupted.", file=sys.stderr)
        if isinstance(stop.__context__, BrokenPipeError):  # the same, as rich ends it
            _leave(0)
        raise


def _leave(exit_code: int) -> None:
    """Without another attempt to write what could not be written."""
    sys.stderr.flush()
    os._exit(exit_code)
