"""`vramcast diff`."""

import json
from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, and_prepare_to_show, command, given_line, show
from vramcast.cli.progress import progress_display
from vramcast.errors import UsageError

WHAT = (
    "A trace.json or a folder with one. Or a file with the output of predict --json or probe "
    "--json, or a run folder. Or a workload, followed by its knobs. Of a line "
    "after --, give a knob twice."
)


@command(
    "diff",
    question="What differs between two traces, runs or workloads?",
    examples="""
    vramcast diff predicted/trace.json measured/trace.json
    vramcast diff before.json after.json
    vramcast diff gpt2-124m batch_size=8 gpt2-124m batch_size=16 --gpu h200
    vramcast diff batch_size=8 batch_size=16 --gpu h200 -- python train.py -b {batch_size}
    vramcast diff main.json branch.json --fail-above 2% --format md
    """,
    then="the first difference of two traces names the operator, the module and the source line. "
    "docs/how-it-works.md says what to do with it.",
    is_shared=True,
)
def diff(
    a: Annotated[str | None, typer.Argument(metavar="A", help=WHAT)] = None,
    b: Annotated[
        list[str] | None,
        typer.Argument(metavar="B", help="What to compare it with, of the same kind."),
    ] = None,
    gpu: options.Gpu = None,
    memory: options.Memory = None,
    allocator: options.Allocator = None,
    timeout: options.Timeout = 300.0,
    fail_above: Annotated[
        str | None,
        typer.Option(
            metavar="GROWTH",
            help="Exit with 3 only if the peak of B is larger by more than this: 2%, 500MiB.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Show the first place where two memory traces differ. Or compare two predictions,
    measurements or workloads: knobs, peaks, categories, modules, tensors, time.

    Exit codes: 0 they are the same, 2 wrong usage, 3 they differ. With --fail-above: 3 if the peak
    grows by more than that, else 0.
    """
    from vramcast.predicting.diff import with_knobs, with_line

    words, line = [*filter(None, [a]), *(b or [])], given_line()
    names, knobs = with_knobs(words if line is None else with_line(words, line))
    if len(names) != 2:
        raise UsageError(
            f"diff compares two things, not {len(names)}.",
            "For example vramcast diff gpt2-124m batch_size=8 gpt2-124m batch_size=16, or "
            "batch_size=8 batch_size=16 -- LINE.",
        )
    with progress_display() as display:
        found = vramcast.diff(
            *names,
            gpu=gpu,
            memory=memory,
            allocator=allocator,
            timeout=timeout,
            a_knobs=knobs[0],
            b_knobs=knobs[1],
            fail_above=fail_above,
            progress=and_prepare_to_show(display, as_json),
        )
    if not isinstance(found, vramcast.TraceDiff):
        show(found, as_json)
    elif as_json:
        print(json.dumps({"a_file": names[0], "b_file": names[1], **found.to_dict()}))
    else:
        from vramcast.reporting.trace import of_diff

        show(of_diff(found, *names))
    is_yes = found.same if fail_above is None else not found.over_max_bytes
    return ExitCode.DONE if is_yes else ExitCode.NO
