"""Runs on one GPU that torchtune and litgpt have published, and the lines that start them."""

from __future__ import annotations

from dataclasses import dataclass

from vramcast.units import GiB

GB = 1e9


@dataclass(frozen=True)
class Run:
    name: str
    gpu: str
    line: str  # run in the folder that one_gpu_data.py filled; CHECKOUT is the program's
    peak_bytes: float | None  # allocated by torch; None: out of memory


# --- torchtune ---

DATA = (
    "checkpointer.checkpoint_dir=MODEL checkpointer.checkpoint_files=[model.safetensors] "
    "checkpointer.output_dir=out output_dir=out tokenizer.path=MODEL/original/tokenizer.model "
    "dataset.source=json dataset.data_files=alpaca.json metric_logger.log_dir=out"
)
TWO = "batch_size=2 gradient_accumulation_steps=1 epochs=1"
PACKED, COMPILED = "dataset.packed=True", "dataset.packed=True compile=True"
KEEP_ALL = "enable_activation_checkpointing=False"
OFFLOAD = "enable_activation_offloading=True"


def _tune(config: str, model: str, options: str) -> str:
    recipe = "full" if "_full_" in config else "lora"
    data = DATA.replace("MODEL", model)
    return f"tune run {recipe}_finetune_single_device --config {config} {data} {TWO} {options}"


def _eight(kind: str, gpu: str, gib: float, options: str = "") -> Run:
    config = f"llama3_1/8B_{kind.lower()}_single_device"
    line = _tune(config, "llama-8b", f"{COMPILED} tokenizer.max_seq_len=2048 {options}".strip())
    return Run(f"{kind}, {gpu}", gpu, line, gib * GiB)


TORCHTUNE_8B = [
    _eight("Full", "rtx-4090", 18.9),
    _eight("Full", "a6000", 37.4, KEEP_ALL),
    _eight("LoRA", "rtx-4090", 16.2, OFFLOAD),
    _eight("LoRA", "a6000", 30.3, KEEP_ALL),
    _eight("QLoRA", "rtx-4090", 7.4, OFFLOAD),
]

ADAMW = "optimizer=torch.optim.AdamW optimizer.fused=True"
AO = "optimizer=torchao.prototype.low_bit_optim.AdamW8bit"
CHUNKED = "loss=torchtune.modules.loss.CEWithChunkedOutputLoss"
WHOLE = "loss=torch.nn.CrossEntropyLoss"
LENGTH = "tokenizer.max_seq_len=4096"
# Not packed, the longest sample makes the peak: this is as long as Alpaca's for another tokenizer.
LONGEST = "tokenizer.max_seq_len=1044"
STEP, BACKWARD = "optimizer_in_bwd=False", "optimizer_in_bwd=True"
CHECKPOINTS = "enable_activation_checkpointing=True"
# each is one technique more; LoRA and QLoRA leave out optimizer_in_bwd and the 8 bits
TECHNIQUES = [
    ("baseline", 25.5, [LONGEST, WHOLE, KEEP_ALL, ADAMW, STEP]),
    ("+ packed dataset", 60.0, [LENGTH, PACKED, WHOLE, KEEP_ALL, ADAMW, STEP]),
    ("+ compile", 51.0, [LENGTH, COMPILED, WHOLE, KEEP_ALL, ADAMW, STEP]),
    ("+ chunked cross entropy", 42.9, [LENGTH, COMPILED, CHUNKED, KEEP_ALL, ADAMW, STEP]),
    ("+ checkpointing", 24.9, [LENGTH, COMPILED, CHUNKED, CHECKPOINTS, ADAMW, STEP]),
    ("+ step in backward", 23.1, [LENGTH, COMPILED, CHUNKED, CHECKPOINTS, ADAMW, BACKWARD]),
    (
        "+ activation offloading",
        21.8,
        [LENGTH, COMPILED, CHUNKED, CHECKPOINTS, OFFLOAD, ADAMW, BACKWARD],
    ),
    ("+ 8-bit AdamW", 17.6, [LENGTH, COMPILED, CHUNKED, CHECKPOINTS, OFFLOAD, AO, BACKWARD]),
    ("LoRA", 8.5, [LENGTH, COMPILED, CHUNKED, CHECKPOINTS, OFFLOAD, ADAMW]),
    ("QLoRA", 4.6, [LENGTH, COMPILED, CHUNKED, CHECKPOINTS, OFFLOAD, ADAMW]),
]


def _three(name: str, gib: float, options: list[str]) -> Run:
    kind = name.lower() if name.endswith("LoRA") else "full"
    line = _tune(f"llama3_2/3B_{kind}_single_device", "llama-3b", " ".join(options))
    return Run(name, "a100-80gb", line, gib * GiB)


TORCHTUNE_3B = [_three(*technique) for technique in TECHNIQUES]

# --- litgpt ---

PHI, STABLE = "phi-1_5", "stablelm-base-alpha-3b"
SEVEN, THIRTEEN, FALCON = "Llama-2-7b-hf", "Llama-2-13b-hf", "falcon-40b"
NF4, DOUBLE = "bnb.nf4", "bnb.nf4-dq"


def _lit(script: str, model: str, micro_batch: int, quantize: str, gb: float | None) -> Run:
    line = (
        f"python CHECKOUT/finetune/{script}_{micro_batch}.py --data_dir alpaca/{model} "
        f"--checkpoint_dir checkpoints/{model} --out_dir out/{script} --precision bf16-true"
    )
    name = f"{script}, {model}, {quantize or 'bf16'}, micro batch {micro_batch}"
    return Run(
        name,
        "a100-40gb",
        f"{line} --quantize {quantize}" if quantize else line,
        None if gb is None else gb * GB,
    )


_LORA: list[tuple[str, int, str, float | None]] = [
    (PHI, 1, "", 4.82),
    (PHI, 1, NF4, 3.78),
    (PHI, 1, DOUBLE, 3.72),
    (PHI, 2, "", 6.76),
    (PHI, 4, "", 10.68),
    (STABLE, 1, "", 9.69),
    (STABLE, 1, NF4, 6.35),
    (STABLE, 1, DOUBLE, 6.19),
    (STABLE, 2, "", 12.10),
    (STABLE, 4, "", 16.92),
    (SEVEN, 1, "", 21.30),
    (SEVEN, 1, NF4, 14.14),
    (SEVEN, 1, DOUBLE, 13.84),
    (SEVEN, 2, "", 29.07),
    (SEVEN, 4, "", None),
    (THIRTEEN, 1, "", 38.12),
    (THIRTEEN, 1, NF4, 23.14),
    (THIRTEEN, 1, DOUBLE, 22.55),
    (THIRTEEN, 2, "", None),
    (THIRTEEN, 4, "", None),
    (FALCON, 1, "", None),
    (FALCON, 1, NF4, None),
    (FALCON, 1, DOUBLE, None),
]
_ADAPTERS = {
    "adapter": {
        STABLE: {"": 9.10, NF4: 5.65, DOUBLE: 5.48},
        SEVEN: {"": 19.98, NF4: 12.68, DOUBLE: 12.38},
    },
    "adapter_v2": {
        STABLE: {"": 10.71, NF4: 7.41, DOUBLE: 7.25},
        SEVEN: {"": 25.51, NF4: 18.30, DOUBLE: 17.98},
    },
}
LITGPT_LORA = [_lit("lora", *row) for row in _LORA]
LITGPT_ADAPTERS = [
    _lit(script, model, 1, quantize, gb)
    for script, models in _ADAPTERS.items()
    for model, sizes in models.items()
    for quantize, gb in sizes.items()
]


@dataclass(frozen=True)
class Table:
    title: str
    repository: str
    commit: str  # of the program, when the table was published
    unit: str
    runs: list[Run]

    @property
    def unit_bytes(self) -> float:
        return GiB if self.unit == "GiB" else GB


TABLES = {
    "torchtune-8b": Table(
        "Llama 3.1 8B with torchtune", "pytorch/torchtune", "30b8519", "GiB", TORCHTUNE_8B
    ),
    "torchtune-3b": Table(
        "Llama 3.2 3B with torchtune, a technique at a time",
        "pytorch/torchtune",
        "1814feb",
        "GiB",
        TORCHTUNE_3B,
    ),
    "litgpt-lora": Table("LoRA with litgpt", "Lightning-AI/litgpt", "0cc02af", "GB", LITGPT_LORA),
    "litgpt-adapters": Table(
        "Adapters with litgpt", "Lightning-AI/litgpt", "0f021f3", "GB", LITGPT_ADAPTERS
    ),
}
