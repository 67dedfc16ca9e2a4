"""Runs on real GPUs that others have published, and the lines that started them."""

from __future__ import annotations

from dataclasses import dataclass

REPOSITORY, COMMIT = "pytorch/torchtitan", "9dec370ad26b5f8e9a7333a0e36165018262644b"
SOURCE = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
COMPILE = "--training.compile"
FLOAT8 = (
    f"{COMPILE} --float8.enable_float8_linear --float8.enable_fsdp_float8_all_gather "
    "--float8.precompute_float8_dynamic_scale_for_fsdp"
)
ASYNC = f"{FLOAT8} --experimental.enable_async_tensor_parallel"
FULL = "--activation_checkpoint.mode full"


@dataclass(frozen=True)
class Published:
    name: str
    gpus: int
    model: str  # its configuration is llama3_MODEL.toml
    options: str
    tokens_per_second: int  # of a GPU
    reserved_gib: float  # the largest of all GPUs

    @property
    def line(self) -> str:
        nodes = f"--nnodes {self.gpus // 8} " if self.gpus > 8 else ""
        config = f"--job.config_file llama3_{self.model}.toml"
        data = "--model.tokenizer_path tokenizer.model --training.dataset c4_test"
        return f"torchrun --nproc-per-node 8 {nodes}train.py {config} {data} {self.options}"


def _long(gpus: int, cp: int) -> Published:
    memory = {1: (3890, 83.9), 2: (2540, 84.2), 4: (1071, 84.0), 8: (548, 84.5)}[cp]
    return Published(
        f"8B, FSDP {gpus // cp}, CP {cp}, {32 * cp}k tokens, compile, float8",
        gpus,
        "8b",
        f"--training.batch_size 1 --training.seq_len {32768 * cp} "
        f"--experimental.context_parallel_degree {cp} {FULL} {FLOAT8}",
        *memory,
    )


def _longer(cp: int, tokens_per_second: int, reserved_gib: float) -> Published:
    """With all four kinds of parallelism."""
    return Published(
        f"405B, FSDP {8 // cp}, TP 8, PP 8 1F1B, CP {cp}, {32 * cp}k tokens, compile, float8, "
        "async TP",
        512,
        "405b",
        f"--training.batch_size 8 --training.seq_len {32768 * cp} "
        "--training.tensor_parallel_degree 8 --experimental.pipeline_parallel_degree 8 "
        f"--experimental.context_parallel_degree {cp} "
        f"--experimental.pipeline_parallel_schedule 1F1B {FULL} {ASYNC}",
        tokens_per_second,
        reserved_gib,
    )


TWO = "--training.batch_size 2"
TP = f"--training.batch_size 16 --training.tensor_parallel_degree 8 {FULL}"
PP = (
    "--training.batch_size 32 --training.tensor_parallel_degree 8 "
    f"--experimental.pipeline_parallel_degree 8 {FULL} {ASYNC}"
)
ROWS = [
    Published("8B, FSDP 8", 8, "8b", TWO, 5762, 82.4),
    Published("8B, FSDP 8, compile", 8, "8b", f"{TWO} {COMPILE}", 6667, 77.0),
    Published("8B, FSDP 8, compile, float8", 8, "8b", f"{TWO} {FLOAT8}", 8532, 76.8),
    *(_long(8, cp) for cp in (1, 2, 4, 8)),
    Published("8B, FSDP 128", 128, "8b", TWO, 5605, 67.0),
    Published("8B, FSDP 128, compile", 128, "8b", f"{TWO} {COMPILE}", 6514, 62.0),
    Published("8B, FSDP 128, compile, float8", 128, "8b", f"{TWO} {FLOAT8}", 8380, 61.8),
    Published("70B, FSDP 32, TP 8, compile, float8", 256, "70b", f"{TP} {FLOAT8}", 829, 71.9),
    Published(
        "70B, FSDP 32, TP 8, compile, float8, async TP", 256, "70b", f"{TP} {ASYNC}", 876, 67.6
    ),
    Published(
        "405B, FSDP 8, TP 8, PP 8 1F1B, compile, float8, async TP",
        512,
        "405b",
        f"{PP} --experimental.pipeline_parallel_schedule 1F1B",
        100,
        82.5,
    ),
    Published(
        "405B, FSDP 8, TP 8, PP 8 interleaved, compile, float8, async TP",
        512,
        "405b",
        f"{PP} --experimental.pipeline_parallel_schedule Interleaved1F1B",
        128,
        72.7,
    ),
    _longer(1, 76, 75.3),
    _longer(2, 47, 75.9),
    _longer(4, 31, 77.1),
    _longer(8, 16, 84.9),
]
