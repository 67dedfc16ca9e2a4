"""Writes docs/published.md from the predictions. Needs no GPU.

PYTHONPATH=src python benchmarks/published/table.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contexts import PUBLISHED
from contexts import SOURCE as CONTEXTS_SOURCE
from one_gpu_table import lines as one_gpu_lines
from rows import COMMIT, REPOSITORY, ROWS, SOURCE, Published

from vramcast.records.store import read_lines, write_atomically
from vramcast.units import GiB

HERE = Path(__file__).parent
TOKENS_PER_GPU = 2 * 8192  # of a step, in the rows without float8
PAGE = HERE.parents[1] / "docs" / "published.md"
HEAD = f"""# Runs on real clusters, predicted with no GPU

Made by `benchmarks/published/table.py`: do not edit by hand. The measurements are nobody's here:
they are those that {REPOSITORY} has published ({SOURCE}),
of 8 to 512 H100s with 96 GB. Its own trainer, unmodified, of the same commit ({COMMIT[:7]}), is
started by its line on the simulated GPU, as the first of its ranks:

<!-- not run: it needs a checkout of torchtitan -->
```bash
python benchmarks/published/data.py CHECKOUT
python benchmarks/published/run.py CHECKOUT
python benchmarks/published/table.py
```

Memory is the peak reserved by torch's allocator, of one GPU. What differs: the runs had the torch
and torchao of 2024-12-23, the prediction has torch 2.13 and torchao 0.7.0. That torch is thought
to have tried flash attention before cuDNN's (`--attention-order flash,efficient`): with cuDNN's
first, as torch 2.13 does on an H100, torchtitan's selective checkpointing keeps less. Tokenizer
and text are generated. Of a pipeline the first of its stages is simulated; published is the largest
of all GPUs. The seconds are of the whole prediction, on two cores that others use too.

Tokens per second are of one GPU. They are predicted from data sheets and from kernels recorded on
an H200. Those H100s have HBM2e (2.4 TB/s) and were held at 500 W: in a long run of products power
decides the clock. How much an operation and a byte take was recorded on an H200 at 700 W
(`benchmarks/step_time/recorded/sustained.jsonl`), not on those GPUs, and nothing was fitted to
this table; the
peak rate of `--gpu h100-96gb` is taken half way between the SXM and the NVL card, and hardly
matters at that power. They are compared on the rows without float8: kernels in 8 bits were not
recorded. In a pipeline a stage waits for others, which is not in the predicted time.
"""
CONTEXTS = f"""
## The longest context on one GPU

The other way round: how long may a sequence be? QLoRA of Llama 3.1 8B (4 bits, rank 32 on all
linear layers, batch 1) with Hugging Face's own code, as given in {CONTEXTS_SOURCE}.
Predicted by `benchmarks/published/contexts.py` from
`hf:meta-llama/Llama-3.1-8B` with peft's `prepare_model_for_kbit_training`, checkpointing, autocast
to bf16, AdamW of 8 bits, and the loss as transformers 4.46 computed it (a copy of the logits in
fp32). Known of the published runs is only what is in the first sentence: optimizer, precision,
the GPUs of each size and the versions are what was usual then. The prediction has transformers
5.17 and torch's attention in place of flash-attention's. `expandable` is with
`expandable_segments:True`, which unsloth sets in its own runs.
"""


def context_row(label: str, found: dict[tuple[str, str], int]) -> str:
    gpu, published = PUBLISHED[label]
    plain, expandable = (found.get((label, one)) for one in ("", "expandable_segments:True"))
    if plain is None:
        return _line([label, gpu, published, "not tried yet", "", ""])
    if not published or not plain:
        error = "both out of memory" if published == plain else "one of them out of memory"
    else:
        error = f"{100 * (plain / published - 1):+.1f} %"
    shown = [one or "out of memory" for one in (published, plain)]
    return _line([label, gpu, *shown, error, "" if expandable is None else expandable or "none"])


def context_lines() -> list[str]:
    records = read_lines(HERE / "contexts.jsonl")
    found = {(one["label"], one["allocator"]): one["predicted_tokens"] for one in records}
    heads = ["memory", "predicted for", "published", "predicted", "error", "expandable"]
    rows = [context_row(label, found) for label in PUBLISHED]
    return [CONTEXTS, _line(heads), _line(["---", "---", *["---:"] * 4]), *rows]


def row(published: Published, record: dict[str, Any] | None) -> str:
    cells = [published.name, published.gpus, f"{published.reserved_gib:.1f}"]
    if record is None or "error" in record:
        why = "not tried yet" if record is None else f"no answer: {record['error']}"
        return _line([*cells, why, "", "", f"{published.tokens_per_second:,}", "", ""])
    found = record["peak_reserved_bytes"] / GiB
    error = 100 * (found / published.reserved_gib - 1)
    memory = [f"{found:.2f}", f"{error:+.2f} %", f"{record['seconds']:.0f}"]
    return _line([*cells, *memory, f"{published.tokens_per_second:,}", *_speed(published, record)])


def _speed(published: Published, record: dict[str, Any]) -> list[str]:
    """Where communication is in the predicted time."""
    if "float8" in published.name or "communication" not in record:
        return ["", ""]
    found = TOKENS_PER_GPU / record["step_seconds"]
    return [f"{found:,.0f}", f"{100 * (found / published.tokens_per_second - 1):+.1f} %"]


def _line(cells: list[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    newest = {record["name"]: record for record in read_lines(HERE / "predicted.jsonl")}
    heads = ["Llama 3.1", "GPUs", "published, GiB", "predicted, GiB", "error", "seconds"]
    heads += ["tokens/s, published", "predicted", "error"]
    lines = [_line(heads), _line(["---", *["---:"] * 8])]
    lines += [row(published, newest.get(published.name)) for published in ROWS]
    write_atomically(
        PAGE, "\n".join([HEAD, *lines, *context_lines(), *one_gpu_lines(_line)]) + "\n"
    )


if __name__ == "__main__":
    main()
