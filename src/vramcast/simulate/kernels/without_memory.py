"""Operators that allocate nothing on the GPU and have no Meta kernel that says so."""

from vramcast.simulate.kernels.registry import kernel


@kernel(
    "_fused_adam_.tensor_lr",
    "_fused_adamw_.tensor_lr",
    "_fused_sgd_",
    "_fused_sgd_.tensor_lr",
    "_fused_adagrad_",
    "_fused_adagrad_.tensor_lr",
    "_assert_async",
    "_assert_async.msg",
    "_amp_foreach_non_finite_check_and_unscale_",
)
def allocate_nothing() -> None:
    """Also assumes that the loss scaler finds all gradients finite, as in nearly all steps of a
    real run."""
