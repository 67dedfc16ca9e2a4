"""What long runs, short sequences and short rows cost beyond their work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import vramcast
from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import BACKWARD, FORWARD, PLAIN, OperatorWork

pytestmark = pytest.mark.usefixtures("warm_simulations")
H200 = find_gpu("h200")
BF16, FP32 = 15, 6
# What sustained.py measured: 8192 x 14336 x 4096 in bf16, in bursts and in a long run of an H200.
BURST_SECONDS, LONG_RUN_SECONDS = 1.237e-3, 1.45e-3


def product(rows: int, columns: int, inner: int) -> OperatorWork:
    moved = 2.0 * (rows * inner + inner * columns + rows * columns)
    sizes = (1, rows, columns, inner)
    return OperatorWork(
        "aten::mm", BF16, 2.0 * rows * columns * inner, moved, sizes, FORWARD, PLAIN
    )


def attention(batch: int, length: int, width: int, *, is_causal: bool = False) -> OperatorWork:
    flops = 4.0 * batch * length * length * width * (0.5 if is_causal else 1.0)
    name, sizes = "aten::_scaled_dot_product_flash_attention", (batch, length, length, width)
    return OperatorWork(name, BF16, flops, 8.0 * batch * length * width, sizes, BACKWARD, PLAIN)


def test_products_in_a_long_run_take_longer_than_one_of_them() -> None:
    one = product(8192, 14336, 4096)
    alone = kernel_time(one, H200, shipped()).seconds
    together = forecast_step([one] * 200, H200).device_seconds / 200
    assert together / alone == pytest.approx(LONG_RUN_SECONDS / BURST_SECONDS, rel=0.06)


def test_less_power_is_a_lower_clock_and_bytes_do_not_mind() -> None:
    works = [product(8192, 14336, 4096)] * 100
    low, high = (replace(H200, power_watts=watts) for watts in (500, 700))
    assert forecast_step(works, low).seconds > 1.1 * forecast_step(works, high).seconds
    moved = OperatorWork("aten::add", BF16, 0.0, 1e9, (0, 0, 0, 0), FORWARD, PLAIN)
    seconds = [forecast_step([moved] * 100, gpu).seconds for gpu in (low, high)]
    assert seconds[0] == seconds[1]


def test_a_gpu_whose_limit_is_not_known_keeps_its_clock() -> None:
    works = [product(8192, 14336, 4096)] * 100
    free = forecast_step(works, replace(H200, power_watts=None))
    assert free.device_seconds == pytest.approx(
        100 * kernel_time(works[0], H200, shipped()).seconds
    )


def test_attention_of_short_sequences_takes_whole_tiles() -> None:
    rates = shipped()
    short, long = attention(32768, 16, 32), attention(128, 256 * 16, 32)
    assert long.flops == 256 * short.flops
    seconds = [kernel_time(work, H200, rates).seconds for work in (short, long)]
    assert seconds[1] < 40 * seconds[0]


def test_a_causal_mask_halves_long_attention_and_not_short() -> None:
    rates = shipped()

    def share(batch: int, length: int) -> float:
        whole, half = (
            kernel_time(attention(batch, length, 64, is_causal=is_causal), H200, rates).seconds
            for is_causal in (False, True)
        )
        return half / whole

    assert share(64, 8192) < 0.55 < 0.99 < share(4096, 32)


def device_seconds(code: str, folder: Path) -> float:
    text = "import torch\ndef build():\n    x = torch.zeros(300_000, 64, device='cuda')\n"
    text += f"    return lambda: {code}\n"
    (folder / "w.py").write_text(text)
    step = vramcast.predict(f"{folder / 'w.py'}:build", gpu="h200").step
    assert step is not None
    return step.device_seconds


def test_running_sums_of_many_short_rows_have_a_block_for_each_row(tmp_path: Path) -> None:
    """On an H200 1.75 ms, and 0.04 ms for as many elements in longer rows: torch's choice of
    threads wraps round where rows are 1,024 times as many as they are long."""
    many = device_seconds("x.cumsum(-1)", tmp_path)
    few = device_seconds("x.view(30_000, 640).cumsum(-1)", tmp_path)
    assert many == pytest.approx(1.75e-3, rel=0.15)
    assert few < many / 8
