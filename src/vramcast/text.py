"""Text from elsewhere (names, messages, output of programs) made fit to be shown."""

import re
from collections.abc import Iterable
from difflib import get_close_matches


def printable(text: str, most: int | None = None, where: str = "") -> str:
    """Without control characters and broken Unicode; of a long text both ends.

    `where` says where the whole is.
    """
    if most is not None and len(text) > most:
        half = most // 2
        left_out = f"[{len(text) - 2 * half:,} characters left out{where}]"
        return f"{printable(text[:half])}\n{left_out}\n{printable(text[-half:])}"
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Begins an advice; empty if no known name is similar."""
    close = get_close_matches(name, [one for one in known if one != name], n=1)
    return f"Did you mean {close[0]!r}? " if close else ""


def markdown_cell(value: object) -> str:
    """On one line, whatever Markdown or HTML is in it."""
    import html  # here: few commands need it, and it takes milliseconds

    text = html.escape(printable(" ".join(str(value).split())), quote=False)
    # An underscore inside a word means nothing; one around it, as of __init__, would make it bold.
    special = r"[|`\[\]\\*]|(?<!\w)__(?=\w)"
    return re.sub(special, lambda found: "".join(f"&#{ord(c)};" for c in found[0]), text)


def whole_words(text: str, width: int) -> str:
    """As many as there is room for, then "…": half of a number would be another number."""
    words = text.split()
    while len(words) > 1 and len(" ".join(words)) > width:
        words = [*words[:-2], "…"] if words[-1] == "…" else [*words[:-1], "…"]
    return " ".join(words)
