"""`--format`, `--report` and `--open`: an answer as Markdown or as a page, beside the terminal."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vramcast.cli.progress import say
from vramcast.errors import UsageError, VramcastError

if TYPE_CHECKING:
    from vramcast.reporting.sections import Section

FORMATS = ("terminal", "md", "json")
PAGE = "report.html"
# The options of every command that shares its answer: the parameter's name, its option, its
# default.
OPTIONS: tuple[tuple[str, Any, Any], ...] = (
    (
        "form",
        Annotated[
            str | None,
            typer.Option("--format", help="terminal, md (Markdown for a pull request) or json."),
        ],
        None,
    ),
    (
        "page",
        Annotated[
            str | None,
            typer.Option("--report", metavar="FILE", help="Also write a page: FILE.html, FILE.md."),
        ],
        None,
    ),
    (
        "is_opened",
        Annotated[bool, typer.Option("--open", help="Open the page in the browser.")],
        False,
    ),
)


@dataclass
class Answer:
    """What a command has shown so far, if the answer is shared."""

    is_markdown: bool
    page: Path | None
    sections: list[Section] = field(default_factory=list)


_answer: ContextVar[Answer | None] = ContextVar("answer", default=None)


def shared_answer() -> Answer | None:
    """The answer of the running command. None if only the terminal, or JSON, was asked for."""
    return _answer.get()


def with_sharing(run: Callable[..., int]) -> Callable[..., int]:
    def sharing(
        *arguments: Any, form: str | None, page: str | None, is_opened: bool, **options: Any
    ) -> int:
        options["as_json"] = _check_form(form, options["as_json"])
        answer = Answer(form == "md", _target(page, is_opened))
        token = _answer.set(answer if answer.is_markdown or answer.page else None)
        try:
            code = run(*arguments, **options)
        except BaseException as problem:
            # Results so far are still wanted, unless the reader of stdout has closed it.
            _finish(answer, is_opened, prints=isinstance(problem, VramcastError))
            raise
        finally:
            _answer.reset(token)
        _finish(answer, is_opened)
        return code

    own = inspect.signature(run).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, keyword, default=default, annotation=option)
        for name, option, default in OPTIONS
    ]
    sharing.__doc__ = run.__doc__
    sharing.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    return sharing


def _check_form(form: str | None, as_json: bool) -> bool:
    """Checks the format, and says whether the answer is JSON."""
    if form not in (None, *FORMATS):
        raise UsageError(f"--format {form!r} is not known.", f"Formats: {', '.join(FORMATS)}.")
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} are two formats.", "Give one of them.")
    return as_json or form == "json"


def _target(page: str | None, is_opened: bool) -> Path | None:
    """The file for the page, checked before anything is predicted. None if no page is wanted."""
    if page is None and not is_opened:
        return None
    if page == "":
        raise UsageError("--report is '', which names no file.", f"For example --report {PAGE}.")
    from vramcast.reporting.showing import check_free

    target = Path(page or PAGE)
    check_free(target, "--report")
    return target


def _finish(answer: Answer, is_opened: bool, *, prints: bool = True) -> None:
    if not answer.sections:
        return
    if answer.is_markdown and prints:
        from vramcast.reporting.markdown import brief_markdown

        print(brief_markdown(answer.sections), end="")
    if answer.page is not None:
        from vramcast.reporting.showing import write_report

        write_report(answer.sections, answer.page)
        wrote(answer.page, is_opened)


def wrote(page: Path, is_opened: bool) -> None:
    """Says where a page was written, and opens it."""
    say(f"Wrote {page}.")
    if is_opened:
        import webbrowser

        if not webbrowser.open(page.absolute().as_uri()):
            say(f"There is no browser here to open it. Open {page} yourself.")
