"""`vramcast env`."""

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, command
from vramcast.cli.progress import progress_display
from vramcast.processes.progress import Progress

MARKS = {
    "good": ("✓", "good"),
    "optional": ("-", ""),
    "notice": ("!", "unsure"),
    "problem": ("✗", "bad"),
}


@command(
    "env",
    question="Is this machine ready to train fast?",
    examples="vramcast env",
    then="do what it advises, then run vramcast tune. Without a GPU, run vramcast predict.",
    needs_arguments=False,
)
def env(as_json: options.Json = False) -> int:
    """Is this machine ready to train fast? GPU, driver, CUDA, Triton, compilers, allocator
    settings, and what to do about each.

    Exit codes: 0 nothing is in the way, 3 something is.
    """
    with progress_display() as progress:
        progress(Progress("Looking at this machine"))
        found = vramcast.env()
    if as_json:
        print(found.to_json())
    else:
        from vramcast.reporting.sections import Remark, Section, Tone
        from vramcast.reporting.showing import show

        remarks = []
        for check in found.checks:
            mark, tone = MARKS[check.status]
            advice = [f"→ {check.advice}"] if check.advice else []
            text = f"{mark} {check.name}: {check.value}"
            remarks.append(Remark(text, Tone(tone), [check.meaning, *advice]))
        show([Section(title="This machine", parts=remarks)])
    return ExitCode.DONE if found.ready else ExitCode.NO
