"""Steps with torch.compile, CUDA graphs, and kernels that are not torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites import models
from vramcast_zoo.suites.huggingface import SIZES
from vramcast_zoo.suites.training import DTYPES, training_step

Step = Callable[[], torch.Tensor]


def compile_parts(model: nn.Module, how: str, **options: Any) -> nn.Module:
    """`model`, or the `blocks` of its longest list, each by itself; nothing with an empty word."""
    if how == "model":
        return torch.compile(model, **options)
    if how == "blocks":
        lists = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
        for block in max(lists, key=len):
            block.compile(**options)
    return model


def compile_update(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step = torch.compile(optimizer.step)


def gpt(
    *,
    batch_size: int = 8,
    seq_len: int = 1024,
    vocabulary: int = 50304,
    width: int = 768,
    depth: int = 6,
    heads: int = 12,
    dropout: float = 0.0,
    checkpointing: str = "",
    attention: str = "sdpa",
    precision: str = "",
    autocast: str = "bf16",
    accumulate: int = 1,
    scale_loss: bool = False,
    how: str = "model",
    mode: str = "default",
    backend: str = "inductor",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    compile_optimizer: bool = False,
    optimizer: str = "adamw",
) -> Step:
    model = models.on_gpu(
        lambda: models.GPT(
            vocabulary, width, depth, heads, seq_len, dropout, checkpointing, attention
        ),
        precision,
    )
    options: dict[str, Any] = {"backend": backend, "dynamic": dynamic, "fullgraph": fullgraph}
    if mode != "default":
        options["mode"] = mode
    compiled = compile_parts(model, how, **options)

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, vocabulary, (batch_size, seq_len + 1), device="cuda")
        return compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    return training_step(
        loss,
        model.parameters(),
        optimizer=optimizer,
        autocast="" if precision else autocast,
        accumulate=accumulate,
        scale_loss=scale_loss,
        prepare=compile_update if compile_optimizer else None,
    )


def lengths(*, batch_size: int = 8, depth: int = 4, dynamic: bool | None = None) -> Step:
    """Every step has another length: what was compiled for one is compiled again, once for all."""
    model = models.on_gpu(lambda: models.GPT(50304, 768, depth, 12, 1024, 0.0, "", "sdpa"), "")
    compiled = torch.compile(model, dynamic=dynamic)
    waiting = [512, 640, 1024, 768]

    def loss() -> torch.Tensor:
        waiting.append(waiting.pop(0))
        tokens = torch.randint(0, 50304, (batch_size, waiting[-1] + 1), device="cuda")
        return compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    return training_step(loss, model.parameters(), autocast="bf16")


def moe(*, batch_size: int = 8, seq_len: int = 512, depth: int = 2) -> Step:
    """Shapes that depend on the data: the graph breaks at every expert."""
    model = models.on_gpu(lambda: models.MoE(32000, 512, depth, 8), "")
    compiled = torch.compile(model)

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 32000, (batch_size, seq_len + 1), device="cuda")
        return compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    return training_step(loss, model.parameters(), autocast="bf16")


def whole_loss(*, batch_size: int = 16, seq_len: int = 512, depth: int = 4) -> Step:
    """The function that makes the batch and computes the loss is what is compiled."""
    model = models.on_gpu(lambda: models.GPT(32000, 512, depth, 8, seq_len, 0.1, "", "sdpa"), "")

    @torch.compile
    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 32000, (batch_size, seq_len + 1), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    return training_step(loss, model.parameters())


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(
            models.Residual(a, b, 2) for a, b in zip([width, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip([width, *widths], widths, strict=False)
        )
        self.mix = nn.ModuleList(models.Residual(a, a, 1) for a in (width, *widths[:2]))
        self.leave = nn.Conv2d(width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        kept = []
        for part in self.down:
            kept.append(x)
            x = part(x)
        for up, mix in zip(reversed(self.up), reversed(self.mix), strict=True):
            x = mix(F.silu(up(x)) + kept.pop())
        return self.leave(x)


def unet(*, batch_size: int = 8, size: int = 128, width: int = 64, autocast: str = "bf16") -> Step:
    model = models.on_gpu(lambda: UNet(width), "")
    compiled = torch.compile(model)

    def loss() -> torch.Tensor:
        images = torch.randn(batch_size, 3, size, size, device="cuda")
        return F.mse_loss(compiled(images).float(), images)

    return training_step(loss, model.parameters(), autocast=autocast)


def resnet(
    *,
    batch_size: int = 64,
    autocast: str = "bf16",
    channels_last: bool = False,
    mode: str = "default",
) -> Step:
    model = models.on_gpu(models.resnet18, "")
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    compiled = torch.compile(model, mode=mode)

    def loss() -> torch.Tensor:
        images = torch.randn(batch_size, 3, 224, 224, device="cuda").contiguous(
            memory_format=layout
        )
        labels = torch.randint(0, 1000, (batch_size,), device="cuda")
        return F.cross_entropy(compiled(images), labels)

    return training_step(loss, model.parameters(), optimizer="sgd", autocast=autocast)


LAYERS = ("num_hidden_layers", "n_layer", "num_layers")


def transformer(size: str, depth: int, precision: str) -> tuple[nn.Module, Any]:
    """A model of transformers with its own sizes and fewer layers."""
    import transformers

    model_name, config_name, settings = SIZES[size]
    config = getattr(transformers, config_name)(**settings)
    for name in LAYERS:
        if depth and hasattr(config, name):
            setattr(config, name, depth)
    torch.set_default_dtype(DTYPES[precision])
    with torch.device("cuda"):
        model = getattr(transformers, model_name)(config)
    torch.set_default_dtype(torch.float32)
    return model.train(), config


def huggingface(
    *,
    size: str,
    depth: int = 4,
    batch_size: int = 8,
    seq_len: int = 512,
    precision: str = "fp32",
    autocast: str = "",
    how: str = "model",
    mode: str = "default",
    dynamic: bool | None = None,
    checkpointing: bool = False,
    optimizer: str = "adamw",
    lora: bool = False,
    liger: bool = False,
) -> Step:
    if liger:
        from liger_kernel.transformers import apply_liger_kernel_to_llama

        apply_liger_kernel_to_llama()
    model, config = transformer(size, depth, precision)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if lora:
        model = with_lora(model, checkpointing)
    compiled = compile_parts(model, how, mode=mode, dynamic=dynamic)

    def loss() -> torch.Tensor:
        if size.startswith("vit"):
            images = torch.randn(batch_size, 3, 224, 224, device="cuda", dtype=DTYPES[precision])
            labels = torch.zeros(batch_size, dtype=torch.long, device="cuda")
            return compiled(pixel_values=images, labels=labels).loss
        tokens = torch.randint(0, config.vocab_size, (batch_size, seq_len), device="cuda")
        return compiled(input_ids=tokens, labels=tokens).loss

    return training_step(loss, model.parameters(), optimizer=optimizer, autocast=autocast)


def with_lora(model: nn.Module, checkpointing: bool) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    if checkpointing:
        adapted.enable_input_require_grads()
    return adapted


class FlexBlock(models.Block):
    """Attention in a window, by FlexAttention."""

    def __init__(self, width: int, heads: int, mask: Any) -> None:
        super().__init__(width, heads, 0.0, "sdpa")
        from torch.nn.attention.flex_attention import flex_attention

        self.attend = lambda q, k, v: flex_attention(q, k, v, block_mask=mask)


def flex(*, batch_size: int = 4, seq_len: int = 2048, depth: int = 4, window: int = 512) -> Step:
    from torch.nn.attention.flex_attention import create_block_mask

    def visible(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < window)

    mask = create_block_mask(visible, None, None, seq_len, seq_len, device="cuda")
    with torch.device("cuda"):
        model = models.GPT(50304, 768, 0, 12, seq_len, 0.0, "", "sdpa")
        model.blocks = nn.ModuleList(FlexBlock(768, 12, mask) for _ in range(depth))
    compiled = torch.compile(model)

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 50304, (batch_size, seq_len + 1), device="cuda")
        return compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    return training_step(loss, model.parameters(), autocast="bf16")


def captured(
    *, batch_size: int = 8, seq_len: int = 1024, depth: int = 6, blocks: bool = False
) -> Step:
    """torch.cuda.graph around the step, or make_graphed_callables around each block."""
    model = models.on_gpu(
        lambda: models.GPT(50304, 768, depth, 12, seq_len, 0.0, "", "sdpa"), "bf16"
    )
    update = torch.optim.AdamW(model.parameters(), capturable=True)
    tokens = torch.randint(0, 50304, (batch_size, seq_len + 1), device="cuda")
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    if blocks:
        sample = torch.randn(
            batch_size, seq_len, 768, device="cuda", dtype=torch.bfloat16, requires_grad=True
        )
        for index, block in enumerate(model.blocks):
            model.blocks[index] = torch.cuda.make_graphed_callables(block, (sample,))

    def step() -> torch.Tensor:
        update.zero_grad(set_to_none=True)
        loss = model(x, y)
        loss.backward()
        update.step()
        return loss.detach()

    if blocks:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    update.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replayed() -> torch.Tensor:
        graph.replay()
        return loss

    return replayed
