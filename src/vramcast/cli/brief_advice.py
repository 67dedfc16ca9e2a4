"""What predict and max-batch show below a no: some changes that make it fit."""

from collections.abc import Mapping
from typing import Any

import vramcast
from vramcast.cli.command import say, show
from vramcast.cli.progress import progress_display
from vramcast.cli.sharing import shared_answer
from vramcast.errors import VramcastError

# A workload that takes longer to simulate is simulated again only when it is asked for.
MOST_SECONDS = 20.0


def show_brief_advice(
    workload: str | list[str],
    knobs: Mapping[str, Any],
    asked: object,
    seconds: float,
    where: Mapping[str, Any],
) -> None:
    """`asked` is the answer, which took `seconds`. `where` are gpu, memory, ..."""
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
        # The answer is there; why it cannot be changed is for who asks for it.
        say(command)
        return
    answer = shared_answer()
    if answer is None or not answer.is_markdown:
        print()
    show(found)
