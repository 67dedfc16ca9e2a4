"""What fits on a phone, and where it goes that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import WIDTHS, Browser


def on_phone(browser: Browser, file: Path) -> Any:
    page = browser.open(file)
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 800})
    return page


def test_a_long_table_scrolls_in_its_frame_and_keeps_its_first_column(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = on_phone(browser, files["accuracy"])
    frame = page.locator(".scroll:not(:has(.folds))").last
    first, second = (frame.locator(cell).first for cell in ("tbody td", "tbody td + td"))
    before = [cell.bounding_box()["x"] for cell in (first, second)]
    frame.focus()
    frame.evaluate("node => { node.scrollLeft = 120 }")
    after = [cell.bounding_box()["x"] for cell in (first, second)]
    assert (after[0], after[1]) == (before[0], before[1] - 120)
    page.wait_for_selector(".scroll.moved")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_short_wide_table_is_a_block_for_each_row_with_every_cell_in_sight(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = on_phone(browser, files["GPUs with their cost"])
    table = page.locator("table.folds")
    cost = table.locator('tbody td[data-heading="cost"]').first
    box = cost.bounding_box()
    assert box["x"] + box["width"] <= WIDTHS["phone"]
    before = cost.evaluate("node => getComputedStyle(node, '::before').content")
    assert "cost" in before
    assert cost.inner_text() == "26.40"
    # It is still a table to a screen reader.
    assert page.get_by_role("table").get_by_role("cell", name="cost 26.40").count() == 1
    page.set_viewport_size({"width": WIDTHS["desktop"], "height": 800})
    first, second = (table.locator(f"tbody tr:first-child td:nth-child({i})") for i in (1, 2))
    assert first.bounding_box()["y"] == second.bounding_box()["y"]


@pytest.mark.parametrize("name", ["max-batch", "plan", "fit"])
def test_the_bars_of_gpus_below_a_slider_are_as_wide_as_the_page(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    page = on_phone(browser, files[name])
    widths = [meter.bounding_box()["width"] for meter in page.locator(".gpu .meter").all()]
    assert len(widths) >= 10
    assert min(widths) > WIDTHS["phone"] / 2
