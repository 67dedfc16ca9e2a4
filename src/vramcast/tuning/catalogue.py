"""Every optimisation that `vramcast tune` tries, what helps most often first."""

from __future__ import annotations

from vramcast.errors import UsageError
from vramcast.tuning.entry import COARSE, ROUNDED, SAME, Change, Entry, knobs, switch

AMPERE, ADA = (8, 0), (8, 9)
FEW_STEPS = "a few steps cannot show what it does to a long run: compare with vramcast bench"
COMPILE_SECONDS = 40.0
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


def _attention(kernel: str, what: str) -> Entry:
    """Through the workload's knob where it has one, else for the whole process."""
    return Entry(
        name=f"sdpa-{kernel}",
        what=what,
        changes=(knobs(attention=kernel), switch(sdpa=kernel)),
        loss_tolerance=ROUNDED,
        needs=("cuda",),
    )


CATALOGUE: tuple[Entry, ...] = (
    # ---------------------------------------------------------------------------------------------------------- what helps most often
    Entry(
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
    Entry(
        name="tf32",
        likely=True,
        what="matrix products of float32 in TF32 (torch.backends.cuda.matmul.allow_tf32)",
        capability=AMPERE,
        changes=(switch(tf32=True),),
        loss_tolerance=ROUNDED,
    ),
    Entry(
        name="sdpa",
        likely=True,
        what="F.scaled_dot_product_attention in place of products and softmax written out",
        changes=(knobs(attention="auto"), knobs(attention="sdpa")),
        loss_tolerance=ROUNDED,
    ),
    Entry(
        name="fused-recurrence",
        likely=True,
        what="recurrent layers in one kernel for all time steps, where the precision allows it",
        changes=(knobs(recurrence="auto"),),
        loss_tolerance=ROUNDED,
        needs=("cuda", "triton", "compiler"),
        start_seconds=10.0,
    ),
    Entry(
        name="fused-recurrence-amp",
        likely=True,
        what="recurrent layers in one kernel for all time steps, with autocast in bfloat16, which it needs",
        changes=(knobs(recurrence="auto", precision="amp-bf16"),),
        capability=AMPERE,
        loss_tolerance=ROUNDED,
        needs=("cuda", "triton", "compiler"),
        start_seconds=10.0,
    ),
    Entry(
        name="checkpointing-off",
        likely=True,
        what="activations are kept, not computed again",
        more_memory=True,
        changes=(knobs(checkpointing=False), knobs(gradient_checkpointing=False)),
    ),
    Entry(
        only_from=FROM_ADAMW,
        name="optimizer-fused",
        likely=True,
        what="AdamW in one kernel",
        changes=(knobs(optimizer="adamw-fused"), knobs(fused=True)),
    ),
    Entry(
        only_from=FROM_ADAMW,
        name="optimizer-foreach",
        likely=True,
        what="AdamW on all weights at once",
        changes=(knobs(optimizer="adamw"), knobs(foreach=True)),
    ),
    Entry(
        name="batch-size",
        what="a larger batch, judged by throughput",
        size="batch_size",
        loss_tolerance=None,
        more_memory=True,
        caution="a larger batch is fewer updates for the same data: the learning rate may need to change",
    ),
    Entry(
        name="bf16",
        likely=True,
        what="weights, gradients and optimizer state in bfloat16",
        capability=AMPERE,
        loss_tolerance=ROUNDED,
        changes=(knobs(precision="bf16"),),
        caution="small updates of a weight are lost in 8 bits of fraction; " + FEW_STEPS,
    ),
    Entry(
        name="amp-fp16",
        likely=True,
        what="autocast in float16 with a scaled loss",
        needs=("cuda",),
        loss_tolerance=ROUNDED,
        changes=(knobs(precision="amp-fp16"), knobs(autocast="fp16")),
    ),
    Entry(
        name="cuda-graphs",
        warmup_steps=3,
        what="the whole step as one CUDA graph",
        changes=(knobs(cuda_graphs=True),),
        needs=("cuda",),
        start_seconds=5.0,
        loss_tolerance=SAME,
    ),
    # --------------------------------------------------------------------------------------------------------- compiled, or in 8 bits
    Entry(
        name="compile",
        warmup_steps=1,
        what="torch.compile",
        changes=(knobs(compile=True),),
        needs=("triton", "compiler"),
        start_seconds=COMPILE_SECONDS,
        loss_tolerance=ROUNDED,
    ),
    Entry(
        name="amp-fp8",
        what="as amp-bf16, with products inside the blocks in 8 bits",
        capability=ADA,
        changes=(knobs(precision="amp-fp8"),),
        loss_tolerance=COARSE,
        caution=FEW_STEPS,
    ),
    # ----------------------------------------------------------------------------------------------------- which kernel for attention
    _attention("flash", "FlashAttention alone"),
    _attention("cudnn", "cuDNN's attention alone"),
    _attention("efficient", "the memory-efficient attention alone"),
    # -------------------------------------------------------------------------------------------------------- switches of the process
    Entry(
        name="cudnn-benchmark",
        what="cuDNN tries its convolutions (torch.backends.cudnn.benchmark)",
        needs=("cuda",),
        changes=(switch(cudnn_benchmark=True),),
        loss_tolerance=ROUNDED,
    ),
    Entry(
        name="anomaly-off",
        what="autograd's anomaly detection off",
        changes=(switch(detect_anomaly=False),),
    ),
    Entry(
        name="expandable-segments",
        what="the allocator's expandable_segments:True",
        needs=("cuda",),
        changes=(Change(allocator="expandable_segments:True"),),
    ),
    # ------------------------------------------------------------------------------ less memory, which pays where a larger batch pays
    Entry(
        name="checkpointing-every-2nd",
        what="every second block is computed again, not kept",
        changes=(knobs(checkpointing=True, checkpoint_every=2),),
    ),
    Entry(
        name="checkpointing-on",
        what="every block is computed again, not kept",
        changes=(knobs(checkpointing=True), knobs(gradient_checkpointing=True)),
    ),
    Entry(
        name="chunked-loss",
        what="the cross entropy of an eighth of the tokens at a time",
        changes=(knobs(loss_chunks=8),),
        loss_tolerance=ROUNDED,
    ),
    Entry(
        name="optimizer-in-backward",
        what="every weight is updated when its gradient is there, without clipping",
        changes=(knobs(optimizer_in_backward=True, clip=0.0), knobs(optimizer_in_backward=True)),
        loss_tolerance=ROUNDED,
        caution="gradients are not clipped",
    ),
    Entry(
        only_from=FROM_ADAMW,
        name="optimizer-8bit-bitsandbytes",
        what="AdamW with states of 8 bits",
        changes=(knobs(optimizer="adamw-8bit-bitsandbytes"),),
        needs=("cuda", "bitsandbytes"),
        loss_tolerance=ROUNDED,
        caution=FEW_STEPS,
    ),
    Entry(
        only_from=FROM_ADAMW,
        name="optimizer-8bit-torchao",
        what="AdamW with states of 8 bits",
        changes=(knobs(optimizer="adamw-8bit-torchao"),),
        needs=("cuda", "torchao", "triton", "compiler"),
        loss_tolerance=ROUNDED,
        caution=FEW_STEPS,
        start_seconds=COMPILE_SECONDS,
    ),
    # ---------------------------------------------------------------------------------------------------------------- data and layout
    Entry(
        name="channels-last",
        what="convolutions with channels last",
        changes=(knobs(channels_last=True), knobs(memory_format="channels_last")),
        loss_tolerance=ROUNDED,
    ),
    Entry(
        name="contiguous",
        what="tensors made contiguous before use",
        changes=(knobs(contiguous=True),),
    ),
    Entry(name="loader-workers", what="four processes load data", changes=(knobs(num_workers=4),)),
    Entry(
        name="pin-memory",
        what="batches in pinned memory",
        changes=(knobs(pin_memory=True),),
        needs=("cuda",),
    ),
    # ---------------------------------------------------------------------------------------------------- another model, other inputs
    Entry(
        name="seq-len",
        what="half the sequence length, judged by throughput",
        size="seq_len",
        loss_tolerance=None,
        changes_training=True,
        caution="a model trained on shorter sequences is another model",
    ),
    Entry(
        name="stochastic-depth",
        what="a step leaves out each block with probability 0.1",
        changes=(knobs(stochastic_depth=0.1),),
        loss_tolerance=COARSE,
        changes_training=True,
        caution=FEW_STEPS,
    ),
    # ---------------------------------------------------------------------------------------------------------- other ways to compile
    Entry(
        name="compile-static",
        warmup_steps=1,
        what="torch.compile with dynamic=False",
        changes=(knobs(compile=True, compile_dynamic=False),),
        needs=("triton", "compiler"),
        start_seconds=COMPILE_SECONDS,
        loss_tolerance=ROUNDED,
    ),
    Entry(
        name="compile-max-autotune",
        warmup_steps=1,
        what="torch.compile with max-autotune, without CUDA graphs",
        changes=(knobs(compile=True, compile_mode="max-autotune-no-cudagraphs"),),
        needs=("triton", "compiler"),
        start_seconds=3 * COMPILE_SECONDS,
        loss_tolerance=ROUNDED,
    ),
    Entry(
        name="compile-reduce-overhead",
        warmup_steps=3,
        what="torch.compile with CUDA graphs (reduce-overhead)",
        changes=(knobs(compile=True, compile_mode="reduce-overhead"),),
        needs=("cuda", "triton", "compiler"),
        start_seconds=COMPILE_SECONDS,
        loss_tolerance=ROUNDED,
    ),
)
BY_NAME = {entry.name: entry for entry in CATALOGUE}


def chosen(only: str | None) -> tuple[Entry, ...]:
    """The entries named with commas, in the catalogue's order; all of them where none is named."""
    if only is None:
        return CATALOGUE
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in BY_NAME]
    if unknown or not names:
        what = (
            f"There is no optimisation {unknown[0]!r}."
            if unknown
            else "--only names no optimisation."
        )
        raise UsageError(what, f"They are: {', '.join(BY_NAME)}.")
    return tuple(entry for entry in CATALOGUE if entry.name in names)
