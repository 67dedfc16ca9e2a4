"""The part of docs/published.md about runs on one GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from one_gpu_rows import TABLES, Run, Table

from vramcast.records.store import read_lines

HERE = Path(__file__).parent
GOOD_PERCENT = 5.0
OUT = "out of memory"
HEAD = """
## Fine-tuning on one GPU

torchtune and litgpt have published what their own programs take on one GPU. Each program, of the
commit that its table was published with, is started by its line on the simulated GPU. Compared is
the peak that torch's allocator had given out, which both programs print. Weights are files with
holes, texts and tokenizers are generated.

<!-- not run: it needs checkouts of torchtune and litgpt -->
```bash
python benchmarks/published/one_gpu_data.py FOLDER torchtune
python benchmarks/published/one_gpu.py torchtune-8b FOLDER CHECKOUT
```
"""
TEXTS = {
    "torchtune-8b": """
Batch 2, packed to 2,048 tokens, compiled (torchtune's README, September 2024). It does not say what
else was set. Taken are the recipes' own configurations; on the A6000 nothing is checkpointed, and
with LoRA and QLoRA on the 4090 activations are offloaded: these two are guesses from the published
sizes. The runs had the torch of their day, the prediction has torch 2.13, torchao 0.10 and
bitsandbytes 0.50. Activations cannot be offloaded in that recipe for full fine-tuning; without
those that it keeps for checkpoints its 4090 would be 1.1 % off, so a later recipe may have run.
""",
    "torchtune-3b": """
Batch 2 of 4,096 tokens on an A100 with 80 GB (torchtune's README, November 2024); every row has
what those above have too. AdamW is taken to be fused, AdamW of 8 bits to be torchao's. In the
baseline every sample is as long as it is: the longest of Alpaca makes the peak, and how long it is
for this tokenizer is not published. 1,044 tokens are taken, as for phi-1.5 below.
""",
    "litgpt-lora": """
LoRA of rank 8 on queries and values, Alpaca, weights in bf16, on an A100 with 40 GB (litgpt's
tutorials/resource-tables.md, October 2023; sizes are in GB, of 1e9 bytes). That page has the length
of the longest sample for every model, and the script begins with it. The prediction has Lightning
2.1 and bitsandbytes 0.41.1, without the layers of the latter that need an older Triton; torch is
2.13 in place of 2.1. With bitsandbytes 0.50 the rows of 4 bits come out 15 % lower: 0.41 keeps the
input of every layer for the backward pass. The page names Lightning 2.1.0.rc0, which has no class
for weights of 4 bits. 2.1.0 makes the whole model in bf16 on the GPU before it quantizes, which for
13B would be more than was published; 2.1.1, which quantizes layer by layer, is taken for 4 bits.

The page says that commit 8641822 ran. The sizes of Llama 2 are those of the commit that the page
was published with, ten days later, which computes RMSNorm in fp32: two tensors of every block are
then kept in fp32 instead of bf16. With 8641822 they come out 2.8 to 5.1 % lower. phi-1.5 and
StableLM, which have LayerNorm, were predicted with 8641822.

An update takes two micro batches in the prediction of Llama 2 and Falcon, in place of 128 samples,
and evaluations are short. The first micro batch has the longest sample and makes the peak: for 7B
in bf16 with micro batch 1 the script as it is gives the same peak, to the byte.
""",
    "litgpt-adapters": """
Likewise, by the scripts for adapters, of January 2024, with Lightning 2.2.0 and bitsandbytes
0.41.0. Here too an update takes two micro batches.
""",
}


def lines(line_of: Any) -> list[str]:
    """`line_of` makes a row of a table."""
    newest = {(one["table"], one["name"]): one for one in read_lines(HERE / "one_gpu.jsonl")}
    made = [HEAD]
    counts = [0, 0, 0, 0]
    for key, table in TABLES.items():
        heads = ["run", "GPU", f"published, {table.unit}", f"predicted, {table.unit}", "error"]
        made += [f"### {table.title}", TEXTS[key]]
        made += [line_of(heads), line_of(["---", "---", "---:", "---:", "---:"])]
        for run in table.runs:
            record = newest.get((key, run.name))
            made.append(line_of(row(table, run, record)))
            counts = [a + b for a, b in zip(counts, counted(run, record), strict=True)]
        made.append("")
    good, sized, called, failing = counts
    made.append(
        f"Of {sized} sizes {good} are within {GOOD_PERCENT:.0f} %; of {failing} runs that were out "
        f"of memory {called} are predicted to be."
    )
    return made


def row(table: Table, run: Run, record: dict[str, Any] | None) -> list[str]:
    published = OUT if run.peak_bytes is None else f"{run.peak_bytes / table.unit_bytes:.2f}"
    if record is None or "error" in record:
        why = "not tried yet" if record is None else f"no answer: {record['error']}"
        return [run.name, run.gpu, published, why, ""]
    predicted = f"{record['peak_allocated_bytes'] / table.unit_bytes:.2f}"
    if run.peak_bytes is None or not record["fits"]:
        same = (run.peak_bytes is None) == (not record["fits"])
        shown = predicted if record["fits"] else OUT
        return [run.name, run.gpu, published, shown, "both" if same else "one of them"]
    return [run.name, run.gpu, published, predicted, f"{_percent(run, record):+.1f} %"]


def counted(run: Run, record: dict[str, Any] | None) -> list[int]:
    """Sizes that are good, sizes; runs called out of memory, runs out of memory."""
    is_answer = record is not None and "error" not in record
    if run.peak_bytes is None:
        return [0, 0, int(is_answer and not record["fits"]), 1]
    is_good = is_answer and record["fits"] and abs(_percent(run, record)) <= GOOD_PERCENT
    return [int(is_good), 1, 0, 0]


def _percent(run: Run, record: dict[str, Any]) -> float:
    return 100 * (record["peak_allocated_bytes"] / run.peak_bytes - 1)
