"""A sixth set of compiled steps, of the kinds that most people train, with sizes, networks and
settings that the sets and suites before have none of: predicted and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../compiled_sixth.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from compiled_parts import tf32
from compiled_sixth_parts import ChunksOfStates, Listener, Nano, Speed, TwoOfExperts
from compiled_third import of_transformers, sizes_of
from torch import nn
from unseen import BF16, Step, training

from vramcast_zoo.suites.compiled import compile_update
from vramcast_zoo.suites.compiled_too import Block, Text, causal, tokens
from vramcast_zoo.suites.training import training_step


# ------------------------------------------------------------------------ words
def nano(batch: int, length: int, sizes: tuple[int, int, int, int], **how: Any) -> Step:
    """nanoGPT in fp32 under autocast, as its own script trains it."""
    words, width, heads, layers = sizes
    model = Nano(words, width, heads, layers, length, how.pop("dropout", 0.0)).cuda()
    compiled = torch.compile(model, **how)
    x, labels = tokens(words, batch, length), tokens(words, batch, length)
    settings: dict[str, Any] = {"autocast": "bf16", "optimizer": "adamw-fused"}
    return training_step(lambda: compiled(x, labels), model.parameters(), **settings)


def gpt2_twice(batch: int, length: int, layers: int) -> Step:
    """transformers' GPT-2 of medium width, block by block, gradients of two batches added."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=1024, n_head=16, n_layer=layers, use_cache=False)
    model = GPT2LMHeadModel(config).cuda()
    for block in model.transformer.h:
        block.compile()
    x = tokens(50_257, batch, length)
    how: dict[str, Any] = {"autocast": "bf16", "optimizer": "adamw-fused", "accumulate": 2}
    return training_step(lambda: model(input_ids=x, labels=x).loss, model.parameters(), **how)


def raced_and_update(batch: int, length: int, *, width: int = 1280, layers: int = 4) -> Step:
    """A GPT as those who race to train one write it, as one whole graph, and AdamW's update."""
    model = Speed(50_304, width, 10, layers, length).cuda()
    compiled = torch.compile(model, fullgraph=True)
    x, labels = tokens(50_304, batch, length), tokens(50_304, batch, length)
    how: dict[str, Any] = {"autocast": "bf16", "prepare": compile_update, "clip": 0.0}
    return training_step(lambda: compiled(x, labels), model.parameters(), **how)


def qwen3_dynamic_fp32(batch: int, length: int, layers: int) -> Step:
    """Qwen3 with weights in fp32 under autocast, dynamic=True."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = sizes_of(2048, 6144, layers, 16, 8, 151_936)
    model = Qwen3ForCausalLM(Qwen3Config(**sizes, tie_word_embeddings=True, use_cache=False)).cuda()
    compiled = torch.compile(model, dynamic=True)
    x = tokens(151_936, batch, length)
    return training(model, lambda: compiled(input_ids=x, labels=x).loss, fused=True)


def padded_roberta(batch: int, length: int, layers: int) -> Step:
    """RoBERTa of large width: texts of several lengths are padded, a seventh of words is hidden."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    sizes = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
    sizes |= {"num_hidden_layers": layers, "vocab_size": 50_265, "max_position_embeddings": 514}
    model = RobertaForMaskedLM(RobertaConfig(**sizes)).cuda()
    compiled = torch.compile(model)
    x, place = 4 + tokens(50_000, batch, length), torch.arange(length, device="cuda")
    long = length - 4 * torch.arange(batch, device="cuda")[:, None]
    real = (place < long).long()
    labels = torch.where((place % 7 == 0) & (place < long), x, -100)
    loss = lambda: compiled(input_ids=x, attention_mask=real, labels=labels).loss  # noqa: E731
    how: dict[str, Any] = {"autocast": "bf16", "optimizer": "adamw-fused"}
    return training_step(loss, model.parameters(), **how)


def modern_bert(batch: int, length: int, layers: int) -> Step:
    """ModernBERT of large width, all of it in bf16."""
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    sizes = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 2624}
    model = ModernBertForMaskedLM(ModernBertConfig(**sizes, num_hidden_layers=layers))
    model = model.to("cuda", BF16)
    compiled = torch.compile(model)
    x = tokens(50_000, batch, length)
    loss = lambda: compiled(input_ids=x, labels=x).loss  # noqa: E731
    return training(model, loss, autocast=False, fused=True)


def states_in_chunks(batch: int, length: int, *, width: int = 1024, layers: int = 4) -> Step:
    """Mamba-2's states in plain torch, chunk by chunk."""
    blocks: list[nn.Module] = [ChunksOfStates(width, 32, 128, 128) for _ in range(layers)]
    model = Text(50_304, width, blocks).cuda()
    compiled = torch.compile(model)
    x = tokens(50_304, batch, length)
    return training(model, lambda: compiled(x, x), fused=True)


def large_t5(batch: int, length: int, told: int, layers: int) -> Step:
    """T5 of large width with ReLU and dropout, under autocast."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_heads": 16, "vocab_size": 32_128}
    config = T5Config(**sizes, num_layers=layers)
    config.use_cache, config.decoder_start_token_id = False, 0
    model = T5ForConditionalGeneration(config).cuda()
    compiled = torch.compile(model)
    x, labels = tokens(32_000, batch, length), tokens(32_000, batch, told)
    return training(model, lambda: compiled(input_ids=x, labels=labels).loss, fused=True)


def room_for_words(batch: int, length: int, *, width: int = 1536, layers: int = 3) -> Step:
    """Eight experts with room for a quarter more words than their share, two for a word."""
    blocks: list[nn.Module] = []
    for _ in range(layers):
        block = Block(width, 24, width, causal, length=length)
        block.gated = TwoOfExperts(width, 4096, 8, 1.25)
        blocks.append(block)
    model = Text(32_000, width, blocks).to("cuda", BF16)
    compiled = torch.compile(model)
    x = tokens(32_000, batch, length)
    return training(model, lambda: compiled(x, x), autocast=False, fused=True)


def near_in_documents(batch: int, length: int, *, width: int = 1280, layers: int = 5) -> Step:
    """FlexAttention: the last 1,024 words of the same document, which each text has others of."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    place, text = torch.arange(length, device="cuda"), torch.arange(batch, device="cuda")
    document = (place + 389 * text[:, None]) // 1536

    def seen(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 1024) & (document[batch, q] == document[batch, k])

    mask = create_block_mask(seen, batch, None, length, length, device="cuda")
    attend = partial(flex_attention, block_mask=mask)
    blocks: list[nn.Module] = [Block(width, 20, 3584, attend, length=length) for _ in range(layers)]
    model = Text(50_304, width, blocks).cuda()
    compiled = torch.compile(model)
    x = tokens(50_304, batch, length)
    return training(model, lambda: compiled(x, x), fused=True)


def low_ranks_of_llama(batch: int, length: int, layers: int) -> Step:
    """peft's LoRA of every product of a Llama of a billion weights in bf16, under autocast."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = sizes_of(3072, 8192, layers, 24, 8, 128_256)
    config = LlamaConfig(**sizes, tie_word_embeddings=True, use_cache=False)
    model = LlamaForCausalLM(config).to("cuda", BF16)
    settings = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear")
    adapted = get_peft_model(model, settings)
    compiled = torch.compile(adapted)
    x = tokens(128_256, batch, length)
    how: dict[str, Any] = {"autocast": "bf16", "optimizer": "adamw-fused"}
    loss = lambda: compiled(input_ids=x, labels=x).loss  # noqa: E731
    return training_step(loss, adapted.parameters(), **how)


# ------------------------------------------------------------------------ pictures and sound
def deit3(batch: int, layers: int) -> Step:
    """DeiT III of base width with layers left out at random, under autocast."""
    import timm

    model = timm.create_model("deit3_base_patch16_224", depth=layers, drop_path_rate=0.1).cuda()
    compiled = torch.compile(model)
    x, labels = torch.randn(batch, 3, 224, 224, device="cuda"), tokens(1000, 1, batch)[0]
    loss = lambda: F.binary_cross_entropy_with_logits(  # noqa: E731
        compiled(x).float(), F.one_hot(labels, 1000).float()
    )
    how: dict[str, Any] = {"autocast": "bf16", "optimizer": "adamw-fused"}
    return training_step(loss, model.parameters(), **how)


def large_vit_bf16(batch: int, layers: int) -> Step:
    """torchvision's vision transformer of large width, all of it in bf16."""
    from torchvision.models import VisionTransformer

    model = VisionTransformer(224, 16, layers, 16, 1024, 4096).to("cuda", BF16)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=BF16)
    labels = tokens(1000, 1, batch)[0]
    loss = lambda: F.cross_entropy(compiled(x).float(), labels, label_smoothing=0.1)  # noqa: E731
    return training(model, loss, autocast=False, fused=True)


def resnet(name: str, batch: int, size: int, *, last: bool = False) -> Step:
    """torchvision's ResNet with momentum: in bf16 where channels are last, else in TF32."""
    from torchvision.models import get_model

    tf32()
    torch.backends.cudnn.allow_tf32 = True
    layout = torch.channels_last if last else torch.contiguous_format
    model = get_model(name, weights=None).cuda().to(memory_format=layout)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=layout)
    labels = tokens(1000, 1, batch)[0]
    how: dict[str, Any] = {"autocast": "bf16" if last else "", "optimizer": "sgd", "clip": 0.0}
    return training_step(lambda: F.cross_entropy(compiled(x), labels), model.parameters(), **how)


def base_convnext(batch: int) -> Step:
    """ConvNeXt of base widths and fewer blocks, channels last."""
    import timm

    sizes = {"depths": (1, 1, 4, 1), "dims": (128, 256, 512, 1024)}
    model = timm.models.ConvNeXt(**sizes, drop_path_rate=0.1).cuda()
    model = model.to(memory_format=torch.channels_last)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = tokens(1000, 1, batch)[0]
    return training(model, lambda: F.cross_entropy(compiled(x).float(), labels), fused=True)


def noise_of_pictures(batch: int, size: int) -> Step:
    """diffusers' U-Net of three widths, attention at its lowest, noise mixed in at every step."""
    from diffusers import DDPMScheduler, UNet2DModel

    model = UNet2DModel(
        sample_size=size,
        block_out_channels=(128, 256, 512),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
        attention_head_dim=64,
    ).cuda()
    compiled = torch.compile(model)
    kept = DDPMScheduler().alphas_cumprod.cuda()
    x = torch.randn(batch, 3, size, size, device="cuda")

    def loss() -> torch.Tensor:
        noise, times = torch.randn_like(x), tokens(1000, 1, batch)[0]
        share = kept[times][:, None, None, None]
        found = compiled(share.sqrt() * x + (1 - share).sqrt() * noise, times).sample
        return F.mse_loss(found.float(), noise)

    how: dict[str, Any] = {"autocast": "bf16", "optimizer": "adamw-fused"}
    return training_step(loss, model.parameters(), **how)


def pieces_of_noise(batch: int, layers: int) -> Step:
    """diffusers' DiT of XL width with a piece for each 2 by 2 latents, under autocast."""
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(num_layers=layers, out_channels=8).cuda()
    compiled = torch.compile(model)
    x, noise = torch.randn(2, batch, 4, 32, 32, device="cuda")
    labels = tokens(1000, 1, batch)[0]

    def loss() -> torch.Tensor:
        share = torch.rand(batch, device="cuda")
        mixed = torch.lerp(x, noise, share[:, None, None, None])
        found = compiled(mixed, (1000 * share).long(), labels).sample.chunk(2, 1)[0]
        return F.mse_loss(found.float(), noise)

    return training(model, loss, fused=True)


def streams_of_noise(batch: int, size: int, words: int, layers: int) -> Step:
    """Stable Diffusion 3.5's transformer of medium width in bf16."""
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=size,
        num_layers=layers,
        num_attention_heads=24,
        joint_attention_dim=4096,
        caption_projection_dim=1536,
        dual_attention_layers=(0, 1),
        qk_norm="rms_norm",
    ).to("cuda", BF16)
    compiled = torch.compile(model)
    how: dict[str, Any] = {"device": "cuda", "dtype": BF16}
    x, noise = torch.randn(2, batch, 16, size, size, **how)
    told, pooled = torch.randn(batch, words, 4096, **how), torch.randn(batch, 2048, **how)

    def loss() -> torch.Tensor:
        share = torch.randn(batch, device="cuda").sigmoid()
        mixed = torch.lerp(x, noise, share.to(BF16)[:, None, None, None])
        found = compiled(mixed, told, pooled, 1000 * share, return_dict=False)[0]
        return F.mse_loss(found.float(), (noise - x).float())

    return training(model, loss, autocast=False, fused=True)


def conformer(batch: int, frames: int, *, width: int = 512, layers: int = 5) -> Step:
    """Conformer of large width with the CTC loss, which is not compiled."""
    model = Listener(80, width, 8, layers, 1024).cuda()
    compiled = torch.compile(model)
    x, labels = torch.randn(batch, frames, 80, device="cuda"), 1 + tokens(1023, batch, 64)
    heard, told = torch.full((batch,), frames // 4), torch.full((batch,), 64)

    def loss() -> torch.Tensor:
        chances = compiled(x).float().log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(chances, labels, heard, told)

    how: dict[str, Any] = {"autocast": "bf16", "optimizer": "adamw-fused"}
    return training_step(loss, model.parameters(), **how)


LLAMA = sizes_of(2048, 8192, 4, 32, 8, 128_256) | {"tie_word_embeddings": True}
EXPERTS = sizes_of(2048, 1024, 3, 16, 16, 50_304) | {"num_experts": 64, "num_experts_per_tok": 8}
STEPS: dict[str, Callable[[], Step]] = {
    "nano_words": lambda: nano(28, 1024, (50_304, 896, 14, 6)),
    "gpt2_twice": lambda: gpt2_twice(8, 1024, 5),
    "raced_and_update": lambda: raced_and_update(20, 1024),
    "llama_blocks_again": lambda: of_transformers("LlamaForCausalLM", LLAMA, 4, 2048, blocks=True),
    "qwen3_dynamic_fp32": lambda: qwen3_dynamic_fp32(7, 1024, 3),
    "olmo2_in_graphs": lambda: of_transformers(
        "Olmo2ForCausalLM",
        sizes_of(2048, 8192, 3, 16, 16, 100_352),
        4,
        2048,
        mode="reduce-overhead",
    ),
    "padded_roberta": lambda: padded_roberta(48, 512, 4),
    "modern_bert": lambda: modern_bert(32, 1024, 4),
    "deit3": lambda: deit3(320, 6),
    "large_vit_bf16": lambda: large_vit_bf16(384, 4),
    "resnet50_last": lambda: resnet("resnet50", 320, 224, last=True),
    "wide_resnet_tf32": lambda: resnet("wide_resnet50_2", 80, 224),
    "base_convnext": lambda: base_convnext(384),
    "noise_of_pictures": lambda: noise_of_pictures(96, 64),
    "pieces_of_noise": lambda: pieces_of_noise(192, 4),
    "streams_of_noise": lambda: streams_of_noise(24, 64, 160, 4),
    "states_in_chunks": lambda: states_in_chunks(10, 2048),
    "large_t5": lambda: large_t5(24, 1024, 256, 2),
    "olmoe": lambda: of_transformers("OlmoeForCausalLM", EXPERTS, 8, 1024),
    "room_for_words": lambda: room_for_words(16, 1024),
    "near_in_documents": lambda: near_in_documents(6, 4096),
    "low_ranks_of_llama": lambda: low_ranks_of_llama(3, 2048, 6),
    "conformer": lambda: conformer(64, 1600),
    "nano_letters_in_graphs": lambda: nano(
        768, 256, (65, 384, 6, 6), dropout=0.2, mode="reduce-overhead"
    ),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
