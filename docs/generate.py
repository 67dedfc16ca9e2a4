"""The generated parts of the documentation.

    python docs/generate.py             options of commands, lists: what `make docs` runs
    python docs/generate.py --outputs   also what `console` blocks print; takes minutes
    python docs/generate.py --pictures  also the pictures of README; needs chromium

A generated part of a page stands between `<!-- generated: WHAT -->` and `<!-- end -->`. With
--outputs, a block is filled with all that its commands print; of one that leaves lines out with
`...`, the lines it shows are renewed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

import counts
import figures
import json_schemas
import notebooks
import pictures
from blocks import DOCS, ROOT, Block, blocks_of, commands_of, pages
from file_list import the_files
from sessions import Sandbox, not_printed

WIDTH = 100
LIKE = 0.75  # of two lines of which only numbers differ
_PART = re.compile(r"(<!-- generated: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def commands() -> dict[str, Any]:
    """The commands by name, as typer makes them."""
    import typer

    from vramcast.cli.commands import app

    return typer.main.get_command(app).commands  # type: ignore[attr-defined,no-any-return]


def help_of(name: str) -> str:
    """What `vramcast NAME --help` prints, as wide as a page."""
    command = commands()[name]
    context = command.make_context(name, [], resilient_parsing=True)
    context.info_name = f"vramcast {name}"
    context.terminal_width = context.max_content_width = WIDTH
    lines = command.get_help(context).rstrip().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def the_commands(page: Path) -> str:
    folder = {DOCS: "commands/", DOCS / "commands": ""}.get(page.parent, "docs/commands/")
    rows = [
        f"| [`{name}`]({folder}{name}.md) | {command.short_help} |"
        for name, command in commands().items()
    ]
    return "\n".join(["", "| command | the question it answers |", "|---|---|", *rows, "", ""])


def the_accuracy() -> str:
    """The summary of the accuracy page, which `make accuracy` makes."""
    text = (DOCS / "accuracy.md").read_text()
    table = re.search(r"^\| method .*?\n\n", text, re.MULTILINE | re.DOTALL)
    exact = re.search(r"^Peak reserved memory is exact .*$", text, re.MULTILINE)
    times = dict(
        re.findall(
            r"^\| (all|the GPU is busy|the GPU waits for the host) \| (?:\d+ \| )+(.*?) \|",
            text,
            re.MULTILINE,
        )
    )
    worst = re.search(r"^\| all \| .*\| (.*?) \|$", text, re.MULTILINE)
    assert table is not None and exact is not None and worst is not None
    sentence = (
        f"Step times are off by {times['all']} in the median "
        f"({times['the GPU is busy']} where the GPU is busy, "
        f"{times['the GPU waits for the host']} where it waits for the host), "
        f"at worst by {worst[1]}."
    )
    return f"\n{table[0]}{exact[0]}\n{sentence}\n\n"


def part(asked: str, page: Path) -> str:
    if asked == "the commands":
        return the_commands(page)
    if asked == "accuracy of all methods":
        return the_accuracy()
    if asked == "how many predictions hit":
        return counts.the_counts()
    if asked == "published by torchtitan":
        return counts.the_published()
    if asked == "the source files":
        return the_files()
    if asked == "the schemas":
        return json_schemas.the_schemas()
    return f"\n```text\n{help_of(asked.removeprefix('options of '))}\n```\n\n"


def generated(page: Path) -> str:
    """The page's text as the code says it should be."""
    return _PART.sub(lambda match: match[1] + part(match[2], page) + match[3], page.read_text())


def fill(page: Path, block: Block, sandbox: Sandbox) -> list[str]:
    """Runs a session and writes what it prints into the page.

    Where the page leaves lines out, one that was not printed becomes the printed line that is most
    like it. Returns those for which there is none.
    """
    wrong, text = list[str](), ""
    for command in commands_of(block):
        printed = sandbox.run(command.text)
        wrong += not_printed(command, printed)
        text += "".join(
            f"{line.rstrip()}\n"
            for line in [f"$ {command.written}", *printed.strip("\n").splitlines()]
        )
    if "..." in block.text.splitlines():
        likest = {line: get_close_matches(line, text.splitlines(), 1, LIKE) for line in wrong}
        shown = [*chain(*(likest.get(line) or [line] for line in block.text.splitlines()))]
        renewed = "".join(f"{line}\n" for line in shown)
        page.write_text(page.read_text().replace(block.text, renewed))
        return [line for line in wrong if not likest[line]]
    if wrong or not any(command.shown for command in commands_of(block)):
        page.write_text(
            page.read_text().replace(f"```console\n{block.text}```", f"```console\n{text}```")
        )
    return []


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--outputs", action="store_true")
    parser.add_argument("--pictures", action="store_true")
    parser.add_argument("pages", nargs="*", help="only these")
    asked = parser.parse_args()
    chosen = [ROOT / page for page in asked.pages] or pages()
    for page in chosen:
        text = generated(page)
        if text != page.read_text():
            page.write_text(text)
            print(f"Wrote {page.relative_to(ROOT)}")
    for made in (json_schemas, figures):
        made.FOLDER.mkdir(exist_ok=True)
        for name, text in made.texts().items():
            (made.FOLDER / name).write_text(text)
    if asked.pictures:
        pictures.make()
    wrong = []
    if asked.outputs:
        with tempfile.TemporaryDirectory() as folder:
            notebooks.fill(Path(folder))
            sandbox = Sandbox(Path(folder))
            for page in chosen:
                for block in blocks_of(page):
                    if block.language == "console" and block.not_run is None:
                        wrong += [
                            f"{block.name}: not printed: {line}"
                            for line in fill(page, block, sandbox)
                        ]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
