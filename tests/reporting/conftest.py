"""The browser, one for each file of tests, and the pages of all records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import CHROMIUM, Browser
from report_examples import PAGES, put

from vramcast.reporting.html import as_html
from vramcast.reporting.showing import make_report


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    with playwright.sync_playwright() as running:
        # a container's root has no sandbox, and its /dev/shm may be small; pages are our own
        started = running.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield Browser(started.new_page())
        started.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: put(folder / f"{name.replace(' ', '-')}.html", as_html(make_report(paths)))
        for name, paths in PAGES.items()
    }
