"""How long one answer takes: cold, from a new process, and warm, from `vramcast server`."""

from __future__ import annotations

from collections.abc import Iterator

from timing import VRAMCAST, Row, against_torch

TITLE = "One answer"
GPT = (*VRAMCAST, "predict", "examples/gpt.py", "--gpu", "rtx-4090")
WRONG_FILE = (*VRAMCAST, "predict", "no_such_file.py", "--gpu", "rtx-4090")


def rows(repeats: int) -> Iterator[Row]:
    yield against_torch("GPT-124M, cold", (*GPT, "--json"), repeats, at_most=0.9)
    yield against_torch("GPT-124M, cold, for people", GPT, repeats, at_most=0.9)
    yield against_torch("help", (*VRAMCAST, "--help"), repeats, at_most_seconds=0.15)
    command_help = (*VRAMCAST, "predict", "--help")
    yield against_torch("help of a command", command_help, repeats, at_most_seconds=0.15)
    yield against_torch(
        "an error that needs no torch", WRONG_FILE, repeats, at_most_seconds=0.15, exit_codes=(2,)
    )
