"""A Hugging Face Llama as a vramcast workload. Needs `pip install transformers`.

    vramcast predict examples/huggingface.py batch_size=4 --gpu a100-80gb    no GPU needed
    python examples/huggingface.py                                           on your GPU

The model comes from a configuration, with random weights, and nothing is downloaded: memory depends
on shapes, not on the values of weights. For another model use its configuration here, or
`AutoConfig.from_pretrained(name)`, which downloads a small file of settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

DEVICE = torch.device("cuda")


def make_model(
    *,
    hidden_size: int,
    intermediate_size: int,
    layers: int,
    heads: int,
    key_value_heads: int,
    vocab_size: int,
    seq_len: int,
    attention: str,
) -> Any:
    # Imported here: vramcast can show the knobs of this file where transformers is missing.
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        vocab_size=vocab_size,
        max_position_embeddings=seq_len,
        attn_implementation=attention,
        use_cache=False,  # the cache is for generating text; in training it only takes memory
    )
    return LlamaForCausalLM(config).train()


def build(
    *,
    batch_size: int = 4,
    seq_len: int = 1024,
    hidden_size: int = 1024,
    intermediate_size: int = 2816,
    layers: int = 16,
    heads: int = 16,
    key_value_heads: int = 4,
    vocab_size: int = 32000,
    precision: Literal["fp32", "amp", "bf16"] = "amp",
    attention: Literal["sdpa", "eager"] = "sdpa",
    checkpointing: bool = False,
    fused: bool | None = None,
) -> Callable[[], Tensor]:
    with DEVICE:  # makes the weights on the GPU, not on the CPU first
        model = make_model(
            hidden_size=hidden_size,
            intermediate_size=intermediate_size,
            layers=layers,
            heads=heads,
            key_value_heads=key_value_heads,
            vocab_size=vocab_size,
            seq_len=seq_len,
            attention=attention,
        )
    if precision == "bf16":  # weights, gradients and optimizer state; "amp" keeps them in float32
        model.to(torch.bfloat16)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=fused)
    use_autocast = precision == "amp"

    def step() -> Tensor:
        # Random tokens take the memory that real ones take. The model shifts the labels itself.
        tokens = torch.randint(vocab_size, (batch_size, seq_len), device=DEVICE)
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=use_autocast):
            loss: Tensor = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    train_one_step = build()
    for number in range(5):
        print(f"step {number}: loss {train_one_step().item():.3f}")
    print(f"peak reserved: {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB")
