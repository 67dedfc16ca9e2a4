"""`vramcast advise`."""

import vramcast
from vramcast.cli import options
from vramcast.cli.command import (
    ExitCode,
    and_prepare_to_show,
    command,
    show,
    workload_and_knobs,
)
from vramcast.cli.progress import progress_display


@command(
    "advise",
    question="What would save memory, how much, and what does it cost?",
    examples="""
    vramcast advise train.py:build batch_size=32 --gpu rtx-4090
    vramcast advise --gpu rtx-4090 -- python train.py --batch_size=32
    """,
    then="change the knobs or the lines that it names. vramcast predict --vary compares values "
    "of a "
    "knob.",
    is_shared=True,
)
def advise(
    workload: options.Workload = None,
    knobs: options.Knobs = None,
    gpu: options.Gpu = None,
    memory: options.Memory = None,
    allocator: options.Allocator = None,
    timeout: options.Timeout = 300.0,
    as_json: options.Json = False,
) -> int:
    """Predict changes that may save memory, alone and combined: what each saves, the time it costs,
    what it does to the training, and how to make it.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing makes it fit.
    """
    given, values = workload_and_knobs(workload, knobs)
    with progress_display() as display:
        found = vramcast.advise(
            given,
            gpu=gpu,
            memory=memory,
            allocator=allocator,
            timeout=timeout,
            progress=and_prepare_to_show(display, as_json),
            knobs=values,
        )
    show(found, as_json)
    return ExitCode.DONE if found.fits or found.suggestions else ExitCode.NO
