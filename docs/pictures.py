"""The pictures of README: a real answer in the terminal, and a part of a page.

`python docs/generate.py --pictures` makes them; the page needs playwright and chromium. A test
compares the first with what the command prints.
"""

from __future__ import annotations

import html
import io
import re
import shutil
import tempfile
from pathlib import Path

import rich._export_format as formats
from blocks import DOCS, ROOT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

TERMINAL, PAGE = DOCS / "terminal.svg", DOCS / "page.png"
COMMAND = "vramcast predict --gpu rtx-4090 -- python examples/train.py --batch_size=12"
COLUMNS, NUM_LINES = 100, 38
PAGE_SIZE = {"width": 1100, "height": 690}
SHOWN = "Memory over time"  # the heading at the top of the picture
# Nothing is loaded from another server.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", formats.CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def make() -> None:
    import vramcast
    from vramcast.reporting.showing import sections_of, show, write_report

    line = COMMAND.partition(" -- ")[2].split()
    found = vramcast.predict(line, gpu="rtx-4090")
    file = io.StringIO()
    show(found, Console(file=file, width=COLUMNS, force_terminal=True, color_system="standard"))
    TERMINAL.write_text(svg_of(file.getvalue()))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        step = vramcast.predict("examples/gpt.py:build", batch_size=16, gpu="rtx-4090")
        write_report(sections_of(step), page)
        _photograph(page)


def svg_of(printed: str) -> str:
    lines = printed.splitlines()[:NUM_LINES]
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True)
    console.print(Text(f"$ {COMMAND}", style="bold"))
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=True)
    # The id is part of every name in it: fixed, so that the same answer is the same file.
    return console.export_svg(
        title="no GPU in this machine", theme=MONOKAI, code_format=FORMAT, unique_id="answer"
    )


def lines_in(svg: str) -> list[str]:
    """The text of the picture, by its lines."""
    found: dict[str, str] = {}
    for y, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*clip-path[^>]*>(.*?)</text>', svg):
        found[y] = found.get(y, "") + html.unescape(text).replace("\xa0", " ")
    return [line.rstrip() for line in found.values()]


def _photograph(page: Path) -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        tab = browser.new_page(viewport=PAGE_SIZE)
        tab.goto(page.as_uri())
        heading = tab.get_by_role("heading", name=SHOWN, exact=True)
        heading.evaluate("one => window.scrollTo(0, one.getBoundingClientRect().top - 24)")
        chart = tab.locator(".chart").first.bounding_box()
        # on an activation in the middle of the model
        tab.mouse.move(chart["x"] + 0.36 * chart["width"], chart["y"] + 0.76 * chart["height"])
        tab.screenshot(path=str(PAGE))
        browser.close()
    _fewer_colours()


def _fewer_colours() -> None:
    """A third of the size, and nothing that an eye sees."""
    from PIL import Image

    with Image.open(PAGE) as picture:
        picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(PAGE, optimize=True)


if __name__ == "__main__":
    import os

    os.chdir(ROOT)
    make()
