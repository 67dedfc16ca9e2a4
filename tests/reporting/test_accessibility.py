"""What axe-core finds in pages: names, roles, order of headings, contrast AA in light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import WIDTHS, Browser
from long_tests import long_unless
from report_examples import OF_ALL_PARTS, PAGES

AXE = pytest.importorskip(
    "axe_playwright_python.sync_playwright",
    reason="axe is not installed: pip install axe-playwright-python",
)
OPTIONS = {"resultTypes": ["violations"], "performanceTimer": False}


@pytest.mark.parametrize("name", long_unless(OF_ALL_PARTS.__contains__, PAGES))
def test_axe_finds_nothing_on_a_desktop_in_light_and_on_a_phone_in_dark(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    page = browser.open(files[name])
    for width, scheme in ((WIDTHS["desktop"], "light"), (WIDTHS["phone"], "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        if name == "prediction":  # what is said of a piece is looked at too
            page.locator(".chart").first.focus()
            page.keyboard.press("ArrowRight")
            page.keyboard.press("Enter")
        found = AXE.Axe().run(page, options=OPTIONS).response["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
