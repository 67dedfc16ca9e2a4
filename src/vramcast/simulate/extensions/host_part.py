"""Makes C++ of a CUDA source that g++ compiles: kernels have no body, and launches call them.

What is left is the host code, which allocates the results. It need not be perfect C++ for every
source: what g++ cannot compile is said.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PRELUDE = '#include "cuda_on_host.h"\n'
CUDA_WORDS = re.compile(r"__global__|__device__|<<<|\.cuh\b")
COMMENT_OR_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'""", re.DOTALL
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[\"<]([^\">]+)[\">][^\n]*", re.MULTILINE)
MARKED = re.compile(r"\b__(global|device)__\b")
# Between the mark and the name of a function: parentheses that are not those of its arguments.
WITH_PARENTHESES = re.compile(r"\b(?:__launch_bounds__|__attribute__|alignas|decltype)\s*$")
ACCESS = re.compile(r"\b(?:public|private|protected)\s*:")
LAUNCH = re.compile(r"<<<.*?>>>", re.DOTALL)
CLOSING = {"(": ")", "{": "}"}


class Edit(NamedTuple):
    begin: int
    end: int
    text: str


def host_part(source: Path, folders: Sequence[Path]) -> str:
    """The host code of a file and of the CUDA headers that it includes from these folders."""
    text = _with_headers(source, folders, set())
    text = "".join(_edited(text, _edits_of_functions(text)))
    return PRELUDE + LAUNCH.sub("", text)


def _with_headers(source: Path, folders: Sequence[Path], seen: set[Path]) -> str:
    """The text without comments, in which CUDA headers stand in place of their includes."""
    seen.add(source)
    text = COMMENT_OR_TEXT.sub(_without_comment, source.read_text(errors="replace"))

    def inline(found: re.Match[str]) -> str:
        for folder in (source.parent, *folders):
            header = (folder / found[1]).resolve()
            if not header.is_file():
                continue
            if header in seen:
                return ""
            if not CUDA_WORDS.search(header.read_text(errors="replace")):
                break
            return _with_headers(header, folders, seen)
        return found[0]

    return INCLUDE.sub(inline, text)


def _without_comment(found: re.Match[str]) -> str:
    """Text in quotes stays. A comment leaves its line ends, so that errors name the right line."""
    return found[0] if found[0][0] in "\"'" else " " + "\n" * found[0].count("\n")


def _edits_of_functions(text: str) -> list[Edit]:
    """Functions of the GPU alone are left out, kernels lose their bodies."""
    shape = _shape(text)
    edits: list[Edit] = []
    for mark in MARKED.finditer(shape):
        if edits and mark.start() < edits[-1].end:
            continue
        edit = _edit_of(shape, mark)
        if edit is not None:
            edits.append(edit)
    return edits


def _shape(text: str) -> str:
    """The same length, without what is in quotes. A directive ends what stands before it."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    def end(found: re.Match[str]) -> str:
        return blank(found)[:-1] + ";"

    return DIRECTIVE.sub(end, COMMENT_OR_TEXT.sub(blank, text))


def _edit_of(shape: str, mark: re.Match[str]) -> Edit | None:
    begin = 1 + max(shape.rfind(character, 0, mark.start()) for character in ";{}")
    for access in ACCESS.finditer(shape, begin, mark.start()):
        begin = access.end()
    arguments = _arguments(shape, mark.end())
    if arguments is None or "__host__" in shape[begin : arguments[0]]:
        return None
    body = re.compile(r"[{;]").search(shape, arguments[1])
    if body is None:
        return None
    end = body.end() if body[0] == ";" else _closing(shape, body.start())
    is_device = mark[1] == "device"
    if end is None or (body[0] == ";" and not is_device):
        return None
    if is_device:
        return Edit(begin, end, _line_ends(shape, begin, end))
    return Edit(body.start(), end, "{" + _line_ends(shape, body.start(), end) + "}")


def _arguments(shape: str, begin: int) -> tuple[int, int] | None:
    """From the parenthesis of a function's arguments to behind its end. A variable has none."""
    while (found := re.compile(r"[(;=]").search(shape, begin)) and found[0] == "(":
        before, end = shape[begin : found.start()], _closing(shape, found.start())
        if end is None:
            return None
        if WITH_PARENTHESES.search(before) or before.rstrip().endswith("operator"):
            begin = end
            continue
        return found.start(), end
    return None


def _closing(shape: str, begin: int) -> int | None:
    """The place behind what closes the bracket at `begin`. None in a source that was cut short:
    it is left as it is, and the compiler says so."""
    opening, depth = shape[begin], 0
    for place in range(begin, len(shape)):
        if shape[place] == opening:
            depth += 1
        elif shape[place] == CLOSING[opening]:
            depth -= 1
            if not depth:
                return place + 1
    return None


def _line_ends(shape: str, begin: int, end: int) -> str:
    return "\n" * shape.count("\n", begin, end)


def _edited(text: str, edits: list[Edit]) -> Iterator[str]:
    place = 0
    for edit in edits:
        yield text[place : edit.begin]
        yield edit.text
        place = edit.end
    yield text[place:]
