"""What predict and max-batch show after "does not fit": some changes that make it fit."""

from collections.abc import Mapping
from typing import Any

import vramcast
from vramcast.cli.command import say, show
from vramcast.cli.progress import progress_display
from vramcast.cli.sharing import shared_answer
from vramcast.errors import VramcastError

# If the simulation took longer, it is not repeated unasked.
MOST_SECONDS = 20.0


def show_brief_advice(
    workload: str | list[str],
    knobs: Mapping[str, Any],
    asked: object,
    seconds: float,
    where: Mapping[str, Any],
) -> None:
    """Shows some changes. `asked` is the answer, which took `seconds`; `where` has gpu, memory and
    so on."""
    base = asked if isinstance(asked, vramcast.Prediction) else None
    command = "vramcast advise, with the same arguments, says what would make it fit."
    if seconds > MOST_SECONDS:
        say(command)
        return
    try:
        with progress_display() as progress:
            found = vramcast.advise(
                workload, brief=True, base=base, progress=progress, knobs=knobs, **where
            )
    except VramcastError:
        # The answer was given; why there is no advice is only shown to those who ask for it.
        say(command)
        return
    answer = shared_answer()
    if answer is None or not answer.is_markdown:
        print()
    show(found)
