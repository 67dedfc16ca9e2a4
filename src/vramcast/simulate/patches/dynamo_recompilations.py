"""A function that is compiled again is noted, with torch's reason.

Why: a run that compiles again and again is slow, and each compilation may allocate.
"""

import re
import sys
from pathlib import Path
from typing import Any

from vramcast.simulate.patching import Patcher
from vramcast.text import whole_words

LIBRARY = "torch._dynamo.convert_frame"
FIND_REASONS = "get_and_maybe_log_recompilation_reasons"
MOST_LETTERS = 120
# parts of torch's reason to leave out: the number of the compilation, and the line that asked
_COMPILATION, _WHERE = re.compile(r"^\d+/\d+: "), re.compile(r"\s+#.*")


def apply(patcher: Patcher) -> None:
    frames = sys.modules[LIBRARY]
    find_reasons = getattr(frames, FIND_REASONS)

    def note_reasons(cache: Any, frame: Any, *more: Any, **options: Any) -> Any:
        reasons = find_reasons(cache, frame, *more, **options)
        if not options.get("skip_logging") and patcher.gpu.compilations:
            code = frame.f_code
            name = f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})"
            patcher.gpu.compilations.recompilations[name, _short(reasons)] += 1
        return reasons

    patcher.put(frames, FIND_REASONS, note_reasons)


def _short(reasons: list[str]) -> str:
    """The reason against the newest compilation, which resembles these inputs most."""
    if not reasons:
        return "torch found no reason"
    first = _COMPILATION.sub("", reasons[0]).strip().splitlines()[0]
    return whole_words(_WHERE.sub("", first), MOST_LETTERS)
