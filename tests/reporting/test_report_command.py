"""`vramcast report` from the command line."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from report_examples import RECORDS, put, record
from typer.testing import CliRunner, Result

from vramcast.cli.commands import app
from vramcast.errors import EnvironmentProblem, UsageError

CURVE = str(RECORDS / "curve.json")


def report(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["report", *arguments], catch_exceptions=False)


def test_without_a_file_the_page_goes_into_the_runs_folder(tmp_path: Path) -> None:
    put(tmp_path / "metrics.json", record("h200-measurement.json"))
    done = report(str(tmp_path))
    assert (
        done.exit_code == 0 and done.stdout == "" and str(tmp_path / "report.html") in done.stderr
    )
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_the_ending_of_the_file_is_the_format(tmp_path: Path) -> None:
    for name, begins in (("a.html", "<!doctype html>"), ("a.md", "<!-- vramcast report -->")):
        assert report(CURVE, "-o", str(tmp_path / name)).exit_code == 0
        assert (tmp_path / name).read_text().startswith(begins)
    assert report(CURVE, "--format", "terminal", "-o", str(tmp_path / "a.txt")).exit_code == 0
    assert "By batch size" in (tmp_path / "a.txt").read_text()


def test_markdown_and_terminal_go_to_stdout(tmp_path: Path) -> None:
    assert "| batch | allocated |" in report(CURVE, "--format", "md").stdout
    plain = report(CURVE, "--format", "terminal").stdout
    assert "By batch size" in plain and "\x1b" not in plain
    assert report(CURVE, "-o", "-").stdout.startswith("<!doctype html>")


def test_a_report_is_made_again_but_nothing_else_is_written_over(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for _ in range(2):
        assert report(CURVE, "-o", str(page)).exit_code == 0
    precious = put(tmp_path / "thesis.html", "<html>mine</html>")
    with pytest.raises(UsageError, match="not a report of vramcast"):
        report(CURVE, "-o", str(precious))
    assert precious.read_text() == "<html>mine</html>"
    with pytest.raises(UsageError, match="is a folder"):
        report(CURVE, "-o", str(tmp_path))


def test_what_never_ends_is_neither_read_nor_written() -> None:
    with pytest.raises(UsageError, match="/dev/zero exists and is not a report"):
        report(CURVE, "-o", "/dev/zero")
    with pytest.raises(UsageError, match="not a regular file"):
        report("/dev/zero")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "pdf"], "'pdf'"),
        (["--format", "md", "--open"], "--open"),
        (["-o", ""], "-o is ''"),
        (["--figures", CURVE], "is not a folder"),
    ],
)
def test_wrong_usage_is_one_message(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=says) as refused:
        report(CURVE, *arguments)
    assert refused.value.advice
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        report(CURVE, "-o", str(put(tmp_path / "file", "x") / "page.html"))


def test_the_page_is_opened_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or not opened[1:])
    page = tmp_path / "page.html"
    assert "no browser" not in report(CURVE, "-o", str(page), "--open").stderr
    assert opened == [page.as_uri()]
    assert "no browser here" in report(CURVE, "-o", str(page), "--open").stderr


@pytest.mark.long
def test_figures_are_svg_files_one_for_every_view(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    done = report(
        str(RECORDS / "prediction.json"),
        "--figures",
        str(tmp_path / "figures"),
        "-o",
        str(tmp_path / "page.html"),
    )
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert f"Wrote {len(names)} figures" in done.stderr
    assert (
        "01-memory-through-step-2-by-category.svg" in names
        and "03-alive-at-the-peak-step-2-by-module.svg" in names
    )
    assert all("<svg" in path.read_text() for path in (tmp_path / "figures").iterdir())


def test_without_matplotlib_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EnvironmentProblem, match="matplotlib") as refused:
        report(CURVE, "--figures", str(tmp_path / "figures"), "-o", str(tmp_path / "page.html"))
    assert "vramcast[accuracy]" in refused.value.advice
