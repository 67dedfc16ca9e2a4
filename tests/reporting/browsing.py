"""A real browser for the pages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
WIDTHS = {"desktop": 1200, "phone": 390}


class Browser:
    """One page after the other in one tab, which is quicker, and the errors of the open one."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on(
            "console",
            lambda message: (
                self.problems.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith("file:") else self.problems.append(request.url)
            ),
        )

    def open(self, file: Path) -> Any:
        self.page.set_viewport_size({"width": WIDTHS["desktop"], "height": 800})
        self.page.emulate_media(media="screen", color_scheme="light")
        self.page.mouse.move(0, 0)
        self.problems.clear()
        self.page.goto(file.as_uri())
        return self.page
