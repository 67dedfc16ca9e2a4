"""Makes text from elsewhere (names, messages, output of programs) safe to show."""

import re
from collections.abc import Iterable
from difflib import get_close_matches


def printable(text: str, most: int | None = None, where: str = "") -> str:
    """The text without control characters and broken Unicode. Of a long text only both ends.

    `where` says where the whole text is.
    """
    if most is not None and len(text) > most:
        half = most // 2
        left_out = f"[{len(text) - 2 * half:,} characters left out{where}]"
        return f"{printable(text[:half])}\n{left_out}\n{printable(text[-half:])}"
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence to begin an advice with. Empty if no known name is similar."""
    close = get_close_matches(name, [one for one in known if one != name], n=1)
    return f"Did you mean {close[0]!r}? " if close else ""


def markdown_cell(value: object) -> str:
    """The value on one line, with Markdown and HTML escaped."""
    import html  # imported here, because few commands need it and it takes milliseconds

    text = html.escape(printable(" ".join(str(value).split())), quote=False)
    # Underscores inside a word mean nothing; those around it, as in __init__, would make it bold.
    special = r"[|`\[\]\\*]|(?<!\w)__(?=\w)"
    return re.sub(special, lambda found: "".join(f"&#{ord(c)};" for c in found[0]), text)


def whole_words(text: str, width: int) -> str:
    """As many words as there is room for, then "…": half a number would be another number."""
    words = text.split()
    while len(words) > 1 and len(" ".join(words)) > width:
        words = [*words[:-2], "…"] if words[-1] == "…" else [*words[:-1], "…"]
    return " ".join(words)
