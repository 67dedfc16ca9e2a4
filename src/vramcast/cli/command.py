"""What commands share: how they are declared, exit codes, folders, how a record is shown."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from vramcast import __version__
from vramcast.cli.coercion import read_plain_values_without_pydantic
from vramcast.cli.missing_file import lacks_file
from vramcast.cli.progress import say as say
from vramcast.cli.sharing import shared_answer, with_sharing
from vramcast.errors import UsageError

if TYPE_CHECKING:
    from vramcast.processes.progress import Progress, Report

START = """\b
Start here:
  vramcast predict gpt2-124m batch_size=8 --gpu rtx-4090   a model known by name
  vramcast predict --gpu rtx-4090 -- python train.py       your own program
  vramcast predict train.py:build --gpu rtx-4090           your own function
  vramcast COMMAND --help                                  an example of each

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the answer is no (it does not fit, nothing helped,
no difference), 130 interrupted, 143 terminated (SIGTERM)."""
read_plain_values_without_pydantic()
app = typer.Typer(
    name="vramcast",
    help="Forecast a PyTorch training run before it runs: how much GPU memory it takes, "
    "how long a step takes, and why.",
    epilog=START,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
STARTS_A_PROGRAM = re.compile(r"(^|[ /])(python[\d.]*|torchrun|accelerate|deepspeed) .*\.py\b")
GIVE_LINE = "Give options, --, and your program's line: --gpu h200 -- python train.py"
# The words after `--`.
_line: ContextVar[list[str] | None] = ContextVar("line", default=None)
Run = TypeVar("Run", bound=Callable[..., int])


def _show_version(asked: bool) -> None:
    if asked:
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


class ExitCode(IntEnum):
    """The exit codes of commands. That of wrong usage is in errors.py."""

    DONE = 0
    FAILED = 1
    NO = 3


def command(
    name: str,
    *,
    question: str,
    examples: str,
    then: str,
    needs_arguments: bool = True,
    is_shared: bool = False,
) -> Callable[[Run], Run]:
    """Declares a command whose function returns the exit code.

    `question` is its line in the list of commands. `examples`, one a line, and `then` end its
    --help. A command that `is_shared` has the options --format, --report and --open.
    """
    lines = examples.strip().splitlines()
    shown = "\n".join(f"  {line.strip()}" for line in lines)
    epilog = f"\b\nExample{'s' * (len(lines) > 1)}:\n{shown}\n\nNext: {then}"

    def declare(function: Run) -> Run:
        called = with_sharing(function) if is_shared else function

        @functools.wraps(called)
        def run(*arguments: Any, **options: Any) -> None:
            raise typer.Exit(called(*arguments, **options))

        app.command(
            name,
            cls=CommandWithLine,
            no_args_is_help=needs_arguments,
            short_help=question,
            epilog=epilog,
        )(run)
        return function

    return declare


class CommandWithLine(TyperCommand):
    """A command for which the words after `--` are the line of a program, with options of its
    own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        position = args.index("--") if "--" in args else len(args)
        _line.set(args[position + 1 :] if "--" in args else None)
        if "--" in args:
            self._check_takes_line()
        elif STARTS_A_PROGRAM.search(" ".join(args)):
            raise UsageError("A program's line comes after --.", GIVE_LINE)
        # without arguments a command shows its help, but not if there is a line
        is_help = self.no_args_is_help
        self.no_args_is_help = is_help and "--" not in args
        try:
            rest: list[str] = super().parse_args(ctx, args[:position])
        except Exception as problem:
            error: Any = problem
            # NoSuchOption, click's or typer's
            if hasattr(error, "possibilities") and any(one.name == "knobs" for one in self.params):
                from vramcast.workload.knobs import HOW_TO_WRITE

                error.message += f". {HOW_TO_WRITE}"
            raise
        finally:
            self.no_args_is_help = is_help
        return rest

    def _check_takes_line(self) -> None:
        """Checks that the command takes a launch line: those do whose workload may be left out."""
        if any(one.name in ("workload", "a") and not one.required for one in self.params):
            return
        raise UsageError(
            f"vramcast {self.name} takes no launch line after --.",
            "predict, max-batch, plan, advise, probe, tune and diff do; fit and report take what "
            "those wrote.",
        )


def workload_and_knobs(
    workload: str | None, knobs: list[str] | None
) -> tuple[str | list[str], dict[str, str]]:
    """The workload of a command, which is a name, or a launch line after `--`; and its knobs."""
    from vramcast.workload import parse_reference

    line = _line.get()
    words = [*filter(None, [workload]), *(knobs or [])]
    if line is None:
        if workload is None:
            raise UsageError("No workload was given.", f"{GIVE_LINE}, or train.py:build.")
        if lacks_file(workload):
            # raises the error before the slow imports
            parse_reference(workload)
        return workload, assignments(knobs)
    for word in words:
        if "=" not in word:
            raise UsageError(
                f"There are two workloads: {word!r} and the line after --.",
                "Before -- give only knobs of the line, such as batch_size=8.",
            )
    return line, assignments(words)


def given_line() -> list[str] | None:
    return _line.get()


def assignments(words: list[str] | None) -> dict[str, str]:
    from vramcast.workload import split_assignments

    return split_assignments(words or [])


def folder_for(kind: str, workload: str | list[str], out: str | None) -> Path:
    """The folder of a run. For a launch line, it is named after the program."""
    if out == "":
        raise UsageError(
            "--out is '', which names no folder.",
            "Give a folder, or leave --out out for a new one under runs/.",
        )
    if out is not None:
        return Path(out)
    if isinstance(workload, list):
        files = [word for word in workload if word.endswith(".py")]
        workload = Path(files[0]).stem if files else "-".join(workload)
    name = re.sub(r"[^A-Za-z0-9]+", "-", Path(workload.replace(":", "-")).name).strip("-")[:40]
    return Path("runs") / f"{kind}-{name}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"


@contextlib.contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """After Ctrl-C, tells the user how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if folder.exists():
            say(f"What is finished is kept. To continue, run the same command with --out {folder}.")
        raise


def and_prepare_to_show(report: Report, as_json: bool) -> Report:
    """Once work has begun, imports what is needed to show the result: this process only waits
    meanwhile."""
    thread = threading.Thread(target=_import_reporting, daemon=True)

    def report_and_prepare(progress: Progress) -> None:
        report(progress)
        if not as_json and thread.ident is None:
            thread.start()

    return report_and_prepare


def _import_reporting() -> None:
    with contextlib.suppress(ImportError):  # the error is raised when it is imported again
        importlib.import_module("vramcast.reporting.showing")
        importlib.import_module("vramcast.reporting.prediction")


def show(record: Any, as_json: bool = False, **more: str) -> None:
    """Prints a record, or sections, to stdout: as one JSON object, with `more` added, or for
    people."""
    answer = shared_answer()
    if answer is not None:
        from vramcast.reporting.showing import sections_of

        answer.sections += sections_of(record)
    if not as_json:
        if answer is None or not answer.is_markdown:
            from vramcast.reporting import showing

            showing.show(record)
        return
    if more:
        print(json.dumps({**json.loads(record.to_json()), **more}))
    else:
        print(record.to_json())
