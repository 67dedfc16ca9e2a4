"""How long one answer takes: cold, from a new process, and warm, from `vramcast server`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from timing import VRAMCAST, Row, against_torch, once

TITLE = "One answer"
# enough on a busy machine
LIBRARY_SECONDS = 40.0
HUGGINGFACE = (*VRAMCAST, "predict", "examples/huggingface.py", "--gpu", "rtx-4090", "--json")
GPT = (*VRAMCAST, "predict", "examples/gpt.py", "--gpu", "rtx-4090")
WRONG_FILE = (*VRAMCAST, "predict", "no_such_file.py", "--gpu", "rtx-4090")


def rows(repeats: int) -> Iterator[Row]:
    os.environ["VRAMCAST_SERVER"] = "off"
    yield against_torch("GPT-124M, cold", (*GPT, "--json"), repeats, at_most=0.9)
    yield against_torch("GPT-124M, cold, for people", GPT, repeats, at_most=0.9)
    yield against_torch("help", (*VRAMCAST, "--help"), repeats, at_most_seconds=0.15)
    command_help = (*VRAMCAST, "predict", "--help")
    yield against_torch("help of a command", command_help, repeats, at_most_seconds=0.15)
    yield against_torch(
        "an error that needs no torch", WRONG_FILE, repeats, at_most_seconds=0.15, exit_codes=(2,)
    )
    yield from warm_rows(repeats)


def warm_rows(repeats: int) -> Iterator[Row]:
    """Of a server that was asked once before: processor seconds are the command's own."""
    os.environ["VRAMCAST_SERVER"] = "use"
    once((*VRAMCAST, "server", "start"), leaves_server=True)
    try:
        yield against_torch(
            "GPT-124M, warm", (*GPT, "--json"), repeats, at_most=0.25, leaves_server=True
        )
        # The first question imports transformers in its own process, the server after it.
        once(HUGGINGFACE, leaves_server=True)
        time.sleep(LIBRARY_SECONDS)
        yield against_torch(
            "a Hugging Face Llama, warm",
            HUGGINGFACE,
            repeats,
            at_most_seconds=2.0,
            leaves_server=True,
        )
    finally:
        once((*VRAMCAST, "server", "stop"), leaves_server=True)
        os.environ["VRAMCAST_SERVER"] = "off"
