"""Weights and optimizer states of few bits: bitsandbytes and torchao."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from vramcast_zoo.suites import models
from vramcast_zoo.suites.compiled import compile_parts, with_lora
from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]
# The sizes of Llama 3: 1B and 8B.
LARGE = {
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "tie_word_embeddings": True,
    },
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}


def qlora(
    *,
    size: str = "1b",
    batch_size: int = 2,
    seq_len: int = 1024,
    bits: int = 4,
    checkpointing: bool = True,
    how: str = "",
) -> Step:
    """Frozen weights in 4 or 8 bits by bitsandbytes, or 16; adapters in bf16, from the
    configuration."""
    import transformers

    config = transformers.LlamaConfig(vocab_size=128256, **LARGE[size])
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    for name, part in list(model.named_modules()):
        if bits < 16 and isinstance(part, nn.Linear) and name != "lm_head":
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], quantized(part, bits))
    for part in model.modules():
        for key, value in list(part._parameters.items()):
            if value is not None and value.is_meta:
                part._parameters[key] = nn.Parameter(
                    torch.randn(value.shape, device="cuda"), requires_grad=False
                )
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config, device="cuda")
    torch.set_default_dtype(torch.float32)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    adapted = with_lora(model, checkpointing).cuda()
    compiled = compile_parts(adapted, how)

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 128256, (batch_size, seq_len), device="cuda")
        return compiled(input_ids=tokens, labels=tokens).loss

    return training_step(loss, adapted.parameters(), optimizer="adamw", autocast="bf16")


def quantized(part: nn.Linear, bits: int) -> nn.Module:
    """On the GPU, quantised there as a checkpoint is when it is loaded."""
    import bitsandbytes as bnb

    new: Any
    weight = torch.zeros(part.weight.shape, dtype=torch.bfloat16)  # drawn ones take minutes
    if bits == 4:
        new = bnb.nn.Linear4bit(
            part.in_features,
            part.out_features,
            bias=False,
            compute_dtype=torch.bfloat16,
            quant_type="nf4",
            device="meta",
        )
        new.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="nf4")
    else:
        new = bnb.nn.Linear8bitLt(
            part.in_features,
            part.out_features,
            bias=False,
            has_fp16_weights=False,
            device="meta",
        )
        new.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    return new.cuda()


def small_optimizer(
    *,
    library: str = "bitsandbytes",
    name: str = "AdamW8bit",
    depth: int = 6,
    batch_size: int = 8,
    how: str = "",
) -> Step:
    """Optimizers with 8 or 4 bits a value, or in pages of the host's memory."""
    model = models.on_gpu(lambda: models.GPT(50304, 768, depth, 12, 1024, 0.0, "", "sdpa"), "bf16")
    compiled = compile_parts(model, how)
    if library == "bitsandbytes":
        import bitsandbytes

        update = getattr(bitsandbytes.optim, name)(model.parameters(), lr=1e-4)
    else:
        import torchao.optim

        update = getattr(torchao.optim, name)(model.parameters(), lr=1e-4)

    def step() -> torch.Tensor:
        tokens = torch.randint(0, 50304, (batch_size, 1025), device="cuda")
        loss = compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    return step
