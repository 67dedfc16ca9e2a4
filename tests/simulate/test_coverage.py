"""What a training step may do, each as a workload of its own.

None crashes, and what is not modelled is in the limits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import vramcast
from vramcast.simulate.cudnn.library import version

pytestmark = pytest.mark.usefixtures("warm_simulations")
WORKLOADS = Path(__file__).parent / "workloads.py"
# what the limits must mention; an empty string: nothing may be left unmodelled
EXPECTED = {
    "built_on_the_host": "",
    "custom_autograd_function": "",
    "custom_operator_with_a_fake_kernel": "what they compute is not known",
    "triton_kernel_launched_directly": "the time of triton::double",
    "compiled": "",
    "reads_the_loss": "",
    "waits_for_a_value": "",  # it is small, so what it waits for is computed
    "recurrent_by_cudnn": "",
    # what is not installed cannot be asked, and of 9.24 and 9.26 nothing was recorded
    "convolution": "" if (version() or 0) // 100 in (919, 920) else "cuDNN",
    "transforms_to_frequencies": "cuFFT",
    "factorises_matrices": "",
    "aligns_by_ctc": "CTC",
    "accumulates_with_a_scaler": "",
    "copies_its_layers": "",
    "shuffles_with_workers": "",
    "saves_itself": "",
}


@pytest.fixture(scope="module")
def predictions() -> dict[str, vramcast.Prediction]:
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(
            lambda name: vramcast.predict(f"{WORKLOADS}:{name}", gpu="h200"), EXPECTED
        )
        return dict(zip(EXPECTED, results, strict=True))


@pytest.mark.parametrize("name", EXPECTED)
def test_it_is_simulated_and_what_is_not_modelled_is_said(
    name: str, predictions: dict[str, vramcast.Prediction]
) -> None:
    limits = predictions[name].limits
    assert any(EXPECTED[name] in limit for limit in limits) if EXPECTED[name] else limits == []


def test_a_model_moved_from_the_host_takes_its_parameters_and_optimizer_state_on_the_gpu(
    predictions: dict[str, vramcast.Prediction],
) -> None:
    prediction = predictions["built_on_the_host"]
    assert prediction.num_parameters == 64 * 4096 + 4096 + 4096 * 64 + 64
    rounded = 2 * (64 * 4096 + 4096 + 4096 * 64) + 512  # bfloat16, blocks of 512 bytes
    assert prediction.breakdown_bytes["parameters"] == rounded
    assert prediction.breakdown_bytes["optimizer_state"] == 2 * rounded


def test_the_optimizer_steps_under_a_loss_scaler(
    predictions: dict[str, vramcast.Prediction],
) -> None:
    assert (
        predictions["accumulates_with_a_scaler"].breakdown_bytes["optimizer_state"]
        == 4 * 64 * 64 + 512
    )


def test_parameters_of_copied_modules_and_of_no_module_are_parameters(
    predictions: dict[str, vramcast.Prediction],
) -> None:
    """Two encoders of two layers.

    64 x 192 + 192 and 64 x 64 + 64 of attention, two products with 128, four norms of 64; and 64
    alone.
    """
    prediction = predictions["copies_its_layers"]
    layer = 64 * 192 + 192 + 64 * 64 + 64 + 2 * 64 * 128 + 128 + 64 + 4 * 64
    assert prediction.num_parameters == 4 * layer + 64
    assert (
        4 * prediction.num_parameters
        <= prediction.breakdown_bytes["parameters"]
        <= 4 * prediction.num_parameters + 50 * 512
    )


def test_a_compiled_chain_keeps_less_than_an_eager_one(
    predictions: dict[str, vramcast.Prediction],
) -> None:
    compiled = predictions["compiled"]
    eager = vramcast.predict(f"{WORKLOADS}:compiled", gpu="h200", no_compile=True)
    assert compiled.peak_allocated_bytes < eager.peak_allocated_bytes / 2
    assert any("torch.compile was switched off" in limit for limit in eager.limits)
    found = compiled.compilation
    assert found is not None and eager.compilation is None
    assert found.eager_peak_reserved_bytes == eager.peak_reserved_bytes
    assert found.eager_step_seconds == pytest.approx(eager.step_seconds, rel=0.2)
    assert compiled.step_seconds and found.eager_step_seconds > compiled.step_seconds


def test_what_is_compiled_again_is_said_with_the_reason(
    predictions: dict[str, vramcast.Prediction],
) -> None:
    found = predictions["compiled"].compilation
    assert found is not None
    [again] = found.recompilations
    assert again.function.startswith("double (workloads.py:")
    assert "expected 2, actual 3" in again.reason
