"""Pages in a real browser: they open without an error, and what moves shows the right numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browsing import WIDTHS, Browser
from long_tests import long_unless
from report_examples import HOSTILE, ODD, OF_ALL_PARTS, PAGES, put, record

from vramcast.forecast.laws import evaluate
from vramcast.records.fit import MemoryFit
from vramcast.reporting.html import as_html
from vramcast.reporting.showing import make_report


@pytest.mark.parametrize("name", long_unless(OF_ALL_PARTS.__contains__, PAGES))
def test_a_page_opens_without_an_error_draws_every_figure_and_is_never_wider_than_the_window(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    """On a desktop; made as narrow as a phone, and dark; and wide again, with other tabs open."""
    page = browser.open(files[name])
    # what is wide scrolls by itself, never the page
    is_too_wide = lambda: page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not is_too_wide()
    for width, scheme in ((WIDTHS["phone"], "dark"), (WIDTHS["desktop"], "light")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert not is_too_wide()
        figures = page.locator("figure[data-figure]")
        assert (
            figures.count()
            == page.locator("figure[data-figure] :is(.chart svg, .sliders, .tree)").count()
            > 0
        )
        page.evaluate("document.querySelectorAll('[role=tab]').forEach((tab) => tab.click())")
        assert page.locator("svg [d*=NaN], svg [transform*=NaN]").count() == 0
        assert not is_too_wide()
        assert browser.problems == []


def test_records_that_lack_something_draw_what_they_have(browser: Browser, tmp_path: Path) -> None:
    paths = [
        put(tmp_path / f"{number}.json", {**record(name), **edit})
        for number, (name, edit, _) in enumerate(ODD)
    ]
    page = browser.open(put(tmp_path / "odd.html", as_html(make_report(paths))))
    page.evaluate("document.querySelectorAll('[role=tab]').forEach((tab) => tab.click())")
    assert browser.problems == []
    assert page.locator(".chart svg").count() == page.locator(".chart").count() > 5


def test_one_point_and_equal_points_can_be_read(browser: Browser, tmp_path: Path) -> None:
    measured = record("h200-measurement.json")
    curve = record("curve.json")
    paths = [
        put(tmp_path / "equal.json", {**measured, "losses": [2.5] * 8}),
        put(tmp_path / "one.json", {**measured, "losses": [2.5]}),
        put(tmp_path / "curve.json", {**curve, "points": curve["points"][:1]}),
    ]
    page = browser.open(put(tmp_path / "level.html", as_html(make_report(paths))))
    ticks = "[aria-label='y-axis tick label'] text"
    equal, one = page.locator("figure", has=page.locator("h3", has_text="Loss")).all()
    for figure in (equal, one):
        assert figure.locator(ticks).all_text_contents() == ["2.3", "2.4", "2.5", "2.6", "2.7"]
    assert one.locator("[aria-label=dot] circle").count() == 1
    memory = page.locator("figure", has=page.locator("h3", has_text="against batch size"))
    assert memory.locator(ticks).all_text_contents()[0] == "0"
    assert memory.locator("[aria-label='x-axis tick label'] text").all_text_contents() == ["4"]
    assert browser.problems == []


def test_the_pointer_shows_the_tensor_its_shape_module_and_source_line(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["prediction"])
    page.get_by_role("tab", name="by category").first.click()
    chart = page.locator(".chart").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert chart.locator(".tip").is_hidden()
    page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + 200)
    told = chart.locator(".tip").inner_text()
    assert "allocated (predicted)" in told and "GiB" in told
    assert "examples/gpt.py:" in told and "blocks." in told and re.search(r"float\d+\[\d+", told)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 100)
    assert chart.locator(".tip").is_hidden()


def test_every_large_allocation_is_a_piece_that_tells_what_it_is(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["prediction"])
    memory = record("prediction.json")["step_memory"]
    chart, below = page.locator(".chart").first, page.locator(".below").first
    assert chart.locator(".piece").count() == len(memory["allocations"]) > 200
    rank, large = max(enumerate(memory["allocations"]), key=lambda one: one[1]["num_bytes"])
    tensor, piece = memory["tensors"][large["tensor"]], chart.locator(f"[data-rank='{rank}']")
    piece.hover()
    told = chart.locator(".tip").inner_text()
    assert tensor["source"] in told and tensor["dtype"] in told
    assert "pointed" in piece.get_attribute("class") and "Point at an area" in below.inner_text()
    page.mouse.down()
    page.mouse.up()
    made, freed = (large[name] - memory["first_event"] for name in ("made_event", "freed_event"))
    told = below.inner_text()
    assert f"at event {made:,} of" in told and f"at event {freed:,} of" in told
    assert "(forward)" in told and "(backward)" in told and tensor["module"] in told
    page.get_by_role("button", name="temporaries").first.click()
    num_left = sum(memory["tensors"][one["tensor"]]["category"] != "temporaries"
                   for one in memory["allocations"])  # fmt: skip
    assert chart.locator(".piece").count() == num_left


def test_pieces_are_found_by_their_module_or_line(browser: Browser, files: dict[str, Path]) -> None:
    page = browser.open(files["prediction"])
    chart, below = page.locator(".chart").first, page.locator(".below").first
    find = page.get_by_label("find a tensor, module or line").first
    find.fill("blocks.11.up")
    memory = record("prediction.json")["step_memory"]
    tensors = [memory["tensors"][one["tensor"]] for one in memory["allocations"]]
    number = sum("blocks.11.up" in f"{one['name']} {one['module']}" for one in tensors)
    assert f"{number} of {len(tensors)} have it: at most" in below.inner_text() and number > 2
    assert chart.locator(".piece:not(.faded)").count() == number
    chart.focus()
    page.keyboard.press("+")
    assert chart.locator(".piece.faded").count() > 0
    find.fill("")
    assert chart.locator(".piece.faded").count() == 0 and "Point at" in below.inner_text()
    page.get_by_role("tab", name="by category").first.click()
    assert find.is_hidden()


def test_keys_go_from_piece_to_piece_and_say_what_each_is(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["prediction"])
    chart, below = page.locator(".chart").first, page.locator(".below").first
    pointed = lambda: int(chart.locator(".pointed").get_attribute("data-rank"))
    chart.focus()
    ranks = []
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
        ranks.append(pointed())
    assert ranks == [0, 1, 2, 1, 0]
    assert "parameters token.weight" in chart.locator(".tip").inner_text()
    page.keyboard.press("Enter")
    assert "before step 2 (build)" in below.inner_text()
    assert below.get_attribute("aria-live") == "polite"
    assert browser.problems == []


def test_keys_walk_through_the_step_zoom_and_go_back(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["prediction"])
    page.get_by_role("tab", name="by category").first.click()
    chart = page.locator(".chart").first
    ticks = lambda: chart.locator("[aria-label='x-axis tick label']").text_content()
    chart.focus()
    before = ticks()
    told = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        told.append(chart.locator(".tip").inner_text())
    assert told[0] == told[2] != told[1]
    page.keyboard.press("+")
    assert ticks() != before
    page.keyboard.press("Escape")
    assert ticks() == before


def test_dragging_zooms_and_a_button_shows_all_again(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["prediction"])
    chart = page.locator(".chart").first
    ticks = lambda: chart.locator("[aria-label='x-axis tick label']").text_content()
    before = ticks()
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 200)
    page.mouse.up()
    assert ticks() != before
    page.get_by_role("button", name="show all").first.click()
    assert ticks() == before


def test_the_wheel_zooms_with_ctrl_and_moves_what_is_zoomed(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["prediction"])
    chart = page.locator(".chart").first
    ticks = lambda: chart.locator("[aria-label='x-axis tick label']").text_content()
    chart.hover()
    seen = [ticks()]
    page.mouse.wheel(0, 100)  # scrolls the page
    chart.hover()
    assert ticks() == seen[0]
    page.keyboard.down("Control")
    for _ in range(3):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function("before => !document.body.textContent.includes(before)", arg=seen[0])
    seen.append(ticks())
    page.mouse.wheel(200, 0)
    page.wait_for_function("before => !document.body.textContent.includes(before)", arg=seen[1])
    page.keyboard.press("Escape")


def test_a_name_in_the_legend_hides_and_shows_what_it_stands_for(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["bench"])
    name = page.locator(".legend button").first
    lines = page.locator(".chart svg [aria-label=line] path")
    before = lines.count()
    name.click()
    assert (lines.count(), name.get_attribute("aria-pressed")) == (before - 1, "false")
    name.click()
    assert lines.count() == before


@pytest.mark.parametrize("name", ["prediction", "GPUs with their cost", "bench"])
def test_a_chart_of_which_everything_is_hidden_stays_quiet(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    page = browser.open(files[name])
    page.evaluate(
        "document.querySelectorAll('.legend button[aria-pressed=true]').forEach((b) => b.click())"
    )
    chart = page.locator(".chart").first
    chart.hover()
    chart.focus()
    for key in ("ArrowRight", "ArrowUp", "Enter", "+", "-", "Escape"):
        page.keyboard.press(key)
    assert chart.locator(".tip").is_hidden() and browser.problems == []
    page.locator(".legend button").first.click()
    assert chart.locator("svg path, svg rect").count() > 0


def reserved(law: MemoryFit, **knobs: int) -> int:
    """As the record has it, asked outside what was simulated too."""
    terms = sum(law.coefficients[name] * evaluate(text, knobs) for name, text in law.terms.items())
    return round(max(terms, law.floor_bytes or 0)) + law.overhead_bytes


def test_the_sliders_for_batch_and_length_give_what_the_law_gives(
    browser: Browser, files: dict[str, Path]
) -> None:
    law = MemoryFit.from_dict(record("plan.json")["gpus"][0]["law"])
    page = browser.open(files["plan"])
    answer, batch, length = (
        page.locator(".answer"),
        page.get_by_label("batch_size"),
        page.get_by_label("seq_len"),
    )
    seen = []
    for batch_size, seq_len in ((8, 256), (9, 256), (9, 512), (60, 1024)):
        batch.fill(str(batch_size))
        length.fill(str(seq_len))
        seen.append(int(answer.get_attribute("data-bytes")))
        assert abs(seen[-1] - reserved(law, batch_size=batch_size, seq_len=seq_len)) <= 1
    assert seen == sorted(set(seen))
    full, room = page.locator("[data-gpu=rtx-4090]"), page.locator("[data-gpu=h200]")
    assert "too much" in full.inner_text() and "free" in room.inner_text()
    assert (
        "full" in full.get_attribute("class")
        and room.locator("i").evaluate("node => parseFloat(node.style.width)") < 100
    )


def test_the_slider_for_the_batch_moves_by_keys(browser: Browser, files: dict[str, Path]) -> None:
    law = record("max-batch.json")["reserved_law"]
    page = browser.open(files["max-batch"])
    slider = page.get_by_label("batch_size")
    slider.focus()
    before = int(page.locator(".answer").get_attribute("data-bytes"))
    page.keyboard.press("ArrowRight")
    assert (
        int(page.locator(".answer").get_attribute("data-bytes")) - before == law["bytes_per_sample"]
    )
    assert int(slider.input_value()) == record("max-batch.json")["recommended"]["batch_size"] + 1


@pytest.mark.parametrize("name", ["prediction.json", "max-batch.json", "bench/small/result.json"])
def test_a_hostile_name_runs_no_script(browser: Browser, tmp_path: Path, name: str) -> None:
    data = record(name)
    if "trial" in data:
        data["trial"]["model"] = HOSTILE
    else:
        data |= {"workload": HOSTILE, "knobs": {HOSTILE: HOSTILE}, "gpu": HOSTILE}
    for tensor in data.get("largest_tensors", []):
        tensor |= {"name": HOSTILE, "module": HOSTILE, "source": HOSTILE}
    file = put(
        tmp_path / "hostile.html", as_html(make_report([put(tmp_path / "hostile.json", data)]))
    )
    page = browser.open(file)
    page.evaluate("document.querySelectorAll('[role=tab]').forEach((tab) => tab.click())")
    page.locator(".chart").last.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.images.length") == 0
    assert page.title() != "owned"
    assert browser.problems == []


def test_a_script_that_got_into_the_page_would_not_run(
    browser: Browser, files: dict[str, Path], tmp_path: Path
) -> None:
    """The policy is the second lock: what is not one of the page's own scripts is refused."""
    intruder = (
        "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    )
    page = files["curve"].read_text().replace("<noscript>", f"{intruder}<noscript>")
    page = browser.open(put(tmp_path / "broken.html", page))
    assert page.title() != "owned"
    assert any("Content Security Policy" in problem for problem in browser.problems)


def test_on_paper_the_page_is_light_and_whole(browser: Browser, files: dict[str, Path]) -> None:
    page = browser.open(files["accuracy"])
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".tools").first.is_hidden()
    assert (
        page.locator(".scroll").first.evaluate("node => getComputedStyle(node).overflowX")
        == "visible"
    )


def test_a_part_of_the_memory_is_shown_alone_and_left_again(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["prediction"])
    boxes, told = page.locator(".tree button"), page.locator(".tree-tip")
    num_boxes = boxes.count()
    page.locator(".tree button", has_text="blocks.*").click()
    assert "12 alike, each about" in told.inner_text()
    assert boxes.first.inner_text().startswith("all ")  # the way back
    page.keyboard.press("Escape")
    assert boxes.count() == num_boxes
    page.get_by_role("tab", name="by source line").click()
    page.locator(".tree button", has_text="line 61").focus()
    assert "of what is alive" in told.inner_text()
    assert browser.problems == []


def test_a_heading_sorts_its_table_by_pointer_and_by_keys(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["accuracy"])
    table = page.locator("table").last

    def column(number: int) -> list[str]:
        return table.locator(f"tbody td:nth-child({number})").all_inner_texts()

    made = column(1)
    heading = table.get_by_role("columnheader", name="measured")
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    sizes = [float(size) * {"G": 1024, "M": 1}[unit[0]] for size, unit in map(str.split, column(2))]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) == 97
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending" and column(1) != made
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") is None and column(1) == made
    table.get_by_role("columnheader", name="row").get_by_role("button").click()
    assert column(1)[0] == min(column(1)) and column(1)[-1] == max(column(1))
    assert browser.problems == []


def is_through(line: dict[str, float], box: dict[str, float]) -> bool:
    at, middle = line["x"] + line["width"] / 2, box["y"] + box["height"] / 2
    is_beside = line["y"] < middle < line["y"] + line["height"]
    return is_beside and box["x"] < at < box["x"] + box["width"]


def test_the_capacity_is_a_line_in_the_row_of_every_gpu_and_on_a_meter(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["GPUs with their cost"])
    cases = record("gpus.json")["cases"]
    ticks = page.locator(".chart").first.locator("[aria-label=tick] line")
    assert ticks.count() == 2 * len(cases)  # each with a rim
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 800})  # numbers are near limits
    page.reload()  # or the chart could be drawn again while its lines are measured
    numbers = page.locator(".chart").first.locator("text", has_text="GiB").all()
    boxes = [box for number in numbers if (box := number.bounding_box())]
    for line in (one.bounding_box() for one in ticks.all()):
        assert not [b for b in boxes if is_through(line, b)]
    page.get_by_role("tab", name="cost").click()
    assert ticks.count() == 0
    page = browser.open(files["prediction"])
    limit, bar = page.locator(".limit").bounding_box(), page.locator(".meter").bounding_box()
    prediction = record("prediction.json")
    used = page.locator(".meter i").last.bounding_box()
    share = (used["x"] + used["width"] - bar["x"]) / (limit["x"] - bar["x"])
    is_of = prediction["peak_reserved_bytes"] / prediction["capacity_bytes"]
    assert share == pytest.approx(is_of, abs=0.01)


def test_two_runs_lie_over_each_other_and_a_tab_shows_the_whole_runs(
    browser: Browser, files: dict[str, Path]
) -> None:
    page = browser.open(files["difference"])
    chart = page.locator(".chart").last
    lines = chart.locator("[aria-label=line] path")
    assert lines.count() == 2
    drawn = lines.first.get_attribute("d")
    page.get_by_role("tab", name="the run", exact=True).click()
    assert lines.count() == 2 and lines.first.get_attribute("d") != drawn
    chart.focus()
    page.keyboard.press("ArrowRight")
    assert "A: " in chart.locator(".tip").inner_text()


def test_advice_falls_from_todays_peak(browser: Browser, files: dict[str, Path]) -> None:
    page = browser.open(files["advice"])
    chart = page.locator(".chart").first
    assert re.search(r"−14\.\d\d GiB", chart.inner_text())
    chart.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert "an eighth of the batch at a time" in chart.locator(".tip").inner_text()
