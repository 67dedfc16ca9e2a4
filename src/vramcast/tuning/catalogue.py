"""Every optimisation that `vramcast tune` tries, what helps most often first."""

from __future__ import annotations

from typing import Any

from vramcast.errors import UsageError
from vramcast.tuning.optimisation import COARSE, ROUNDED, SAME, Optimisation, knobs, switch
from vramcast.workload.configuration import Configuration

AMPERE, ADA = (8, 0), (8, 9)
FEW_STEPS = "a few steps cannot show what it does to a long run: compare with vramcast bench"
COMPILE_SECONDS = 40.0
TRITON = ("triton", "compiler")
# The baseline's optimizers that another AdamW may take the place of.
FROM_ADAMW = {
    "optimizer": (
        "adamw",
        "adamw-loop",
        "adamw-foreach",
        "adamw-fused",
        "adamw-8bit-bitsandbytes",
        "adamw-8bit-torchao",
    )
}


def _compiled(
    name: str,
    what: str,
    *,
    needs: tuple[str, ...] = TRITON,
    warmup_steps: int = 1,
    start_seconds: float = COMPILE_SECONDS,
    **options: Any,
) -> Optimisation:
    return Optimisation(
        name=name,
        what=what,
        changes=(knobs(compile=True, **options),),
        needs=needs,
        warmup_steps=warmup_steps,
        start_seconds=start_seconds,
        loss_tolerance=ROUNDED,
    )


def _attention(kernel: str, what: str) -> Optimisation:
    """By the workload's knob if it has one, else for the whole process."""
    return Optimisation(
        name=f"sdpa-{kernel}",
        what=what,
        changes=(knobs(attention=kernel), switch(sdpa=kernel)),
        loss_tolerance=ROUNDED,
        needs=("cuda",),
    )


CATALOGUE: tuple[Optimisation, ...] = (
    # What helps most often.
    Optimisation(
        name="amp-bf16",
        likely=True,
        what="autocast in bfloat16, weights stay float32",
        capability=AMPERE,
        loss_tolerance=ROUNDED,
        changes=(
            knobs(precision="amp-bf16"),
            knobs(precision="amp"),
            knobs(autocast="bf16"),
            knobs(amp=True),
        ),
    ),
    Optimisation(
        name="tf32",
        likely=True,
        what="matrix products of float32 in TF32 (torch.backends.cuda.matmul.allow_tf32)",
        capability=AMPERE,
        changes=(switch(tf32=True),),
        loss_tolerance=ROUNDED,
    ),
    Optimisation(
        name="sdpa",
        likely=True,
        what="F.scaled_dot_product_attention in place of products and softmax written out",
        changes=(knobs(attention="auto"), knobs(attention="sdpa")),
        loss_tolerance=ROUNDED,
    ),
    Optimisation(
        name="fused-recurrence",
        likely=True,
        what="recurrent layers in one kernel for all time steps, where the precision allows it",
        changes=(knobs(recurrence="auto"),),
        loss_tolerance=ROUNDED,
        needs=("cuda", *TRITON),
        start_seconds=10.0,
    ),
    Optimisation(
        name="fused-recurrence-amp",
        likely=True,
        what="recurrent layers in one kernel for all time steps, with the autocast it needs",
        changes=(knobs(recurrence="auto", precision="amp-bf16"),),
        capability=AMPERE,
        loss_tolerance=ROUNDED,
        needs=("cuda", *TRITON),
        start_seconds=10.0,
    ),
    Optimisation(
        name="checkpointing-off",
        likely=True,
        what="activations are kept, not computed again",
        more_memory=True,
        changes=(knobs(checkpointing=False), knobs(gradient_checkpointing=False)),
    ),
    Optimisation(
        name="optimizer-fused",
        only_from=FROM_ADAMW,
        likely=True,
        what="AdamW in one kernel",
        changes=(knobs(optimizer="adamw-fused"), knobs(fused=True)),
    ),
    Optimisation(
        name="optimizer-foreach",
        only_from=FROM_ADAMW,
        likely=True,
        what="AdamW on all weights at once",
        changes=(knobs(optimizer="adamw"), knobs(foreach=True)),
    ),
    Optimisation(
        name="batch-size",
        what="a larger batch, judged by throughput",
        size="batch_size",
        loss_tolerance=None,
        more_memory=True,
        caution="a larger batch is fewer updates for the same data: "
        "the learning rate may need to change",
    ),
    Optimisation(
        name="bf16",
        likely=True,
        what="weights, gradients and optimizer state in bfloat16",
        capability=AMPERE,
        loss_tolerance=ROUNDED,
        changes=(knobs(precision="bf16"),),
        caution="small updates of a weight are lost in 8 bits of fraction; " + FEW_STEPS,
    ),
    Optimisation(
        name="amp-fp16",
        likely=True,
        what="autocast in float16 with a scaled loss",
        needs=("cuda",),
        loss_tolerance=ROUNDED,
        changes=(knobs(precision="amp-fp16"), knobs(autocast="fp16")),
    ),
    Optimisation(
        name="cuda-graphs",
        warmup_steps=3,
        what="the whole step as one CUDA graph",
        changes=(knobs(cuda_graphs=True),),
        needs=("cuda",),
        start_seconds=5.0,
        loss_tolerance=SAME,
    ),
    # Compiled, or in 8 bits.
    _compiled("compile", "torch.compile"),
    Optimisation(
        name="amp-fp8",
        what="as amp-bf16, with products inside the blocks in 8 bits",
        capability=ADA,
        changes=(knobs(precision="amp-fp8"),),
        loss_tolerance=COARSE,
        caution=FEW_STEPS,
    ),
    # Which kernel for attention.
    _attention("flash", "FlashAttention alone"),
    _attention("cudnn", "cuDNN's attention alone"),
    _attention("efficient", "the memory-efficient attention alone"),
    # Switches of the process.
    Optimisation(
        name="cudnn-benchmark",
        what="cuDNN tries its convolutions (torch.backends.cudnn.benchmark)",
        needs=("cuda",),
        changes=(switch(cudnn_benchmark=True),),
        loss_tolerance=ROUNDED,
    ),
    Optimisation(
        name="anomaly-off",
        what="autograd's anomaly detection off",
        changes=(switch(detect_anomaly=False),),
    ),
    Optimisation(
        name="expandable-segments",
        what="the allocator's expandable_segments:True",
        needs=("cuda",),
        changes=(Configuration(allocator="expandable_segments:True"),),
    ),
    # Less memory, which pays where a larger batch pays.
    Optimisation(
        name="checkpointing-every-2nd",
        what="every second block is computed again, not kept",
        changes=(knobs(checkpointing=True, checkpoint_every=2),),
    ),
    Optimisation(
        name="checkpointing-on",
        what="every block is computed again, not kept",
        changes=(knobs(checkpointing=True), knobs(gradient_checkpointing=True)),
    ),
    Optimisation(
        name="chunked-loss",
        what="the cross entropy of an eighth of the tokens at a time",
        changes=(knobs(loss_chunks=8),),
        loss_tolerance=ROUNDED,
    ),
    Optimisation(
        name="optimizer-in-backward",
        what="every weight is updated when its gradient is there, without clipping",
        changes=(knobs(optimizer_in_backward=True, clip=0.0), knobs(optimizer_in_backward=True)),
        loss_tolerance=ROUNDED,
        caution="gradients are not clipped",
    ),
    Optimisation(
        name="optimizer-8bit-bitsandbytes",
        only_from=FROM_ADAMW,
        what="AdamW with states of 8 bits",
        changes=(knobs(optimizer="adamw-8bit-bitsandbytes"),),
        needs=("cuda", "bitsandbytes"),
        loss_tolerance=ROUNDED,
        caution=FEW_STEPS,
    ),
    Optimisation(
        name="optimizer-8bit-torchao",
        only_from=FROM_ADAMW,
        what="AdamW with states of 8 bits",
        changes=(knobs(optimizer="adamw-8bit-torchao"),),
        needs=("cuda", "torchao", *TRITON),
        loss_tolerance=ROUNDED,
        caution=FEW_STEPS,
        start_seconds=COMPILE_SECONDS,
    ),
    # Data and layout.
    Optimisation(
        name="channels-last",
        what="convolutions with channels last",
        changes=(knobs(channels_last=True), knobs(memory_format="channels_last")),
        loss_tolerance=ROUNDED,
    ),
    Optimisation(
        name="contiguous",
        what="tensors made contiguous before use",
        changes=(knobs(contiguous=True),),
    ),
    Optimisation(
        name="loader-workers", what="four processes load data", changes=(knobs(num_workers=4),)
    ),
    Optimisation(
        name="pin-memory",
        what="batches in pinned memory",
        changes=(knobs(pin_memory=True),),
        needs=("cuda",),
    ),
    # Another model, other inputs.
    Optimisation(
        name="seq-len",
        what="half the sequence length, judged by throughput",
        size="seq_len",
        loss_tolerance=None,
        changes_training=True,
        caution="a model trained on shorter sequences is another model",
    ),
    Optimisation(
        name="stochastic-depth",
        what="a step leaves out each block with probability 0.1",
        changes=(knobs(stochastic_depth=0.1),),
        loss_tolerance=COARSE,
        changes_training=True,
        caution=FEW_STEPS,
    ),
    # Other ways to compile.
    _compiled("compile-static", "torch.compile with dynamic=False", compile_dynamic=False),
    _compiled(
        "compile-max-autotune",
        "torch.compile with max-autotune, without CUDA graphs",
        start_seconds=3 * COMPILE_SECONDS,
        compile_mode="max-autotune-no-cudagraphs",
    ),
    _compiled(
        "compile-reduce-overhead",
        "torch.compile with CUDA graphs (reduce-overhead)",
        needs=("cuda", *TRITON),
        warmup_steps=3,
        compile_mode="reduce-overhead",
    ),
)
BY_NAME = {optimisation.name: optimisation for optimisation in CATALOGUE}


def chosen(only: str | None) -> tuple[Optimisation, ...]:
    """The optimisations named in `only`, in the catalogue's order; all of them for None."""
    if only is None:
        return CATALOGUE
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = f"They are: {', '.join(BY_NAME)}."
    if not names:
        raise UsageError("--only names no optimisation.", known)
    for name in names:
        if name not in BY_NAME:
            raise UsageError(f"There is no optimisation {name!r}.", known)
    return tuple(optimisation for optimisation in CATALOGUE if optimisation.name in names)
