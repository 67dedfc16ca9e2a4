"""A seventh set of compiled steps, of the kinds that most people train, with sizes, networks and
settings that the sets and suites before have none of: predicted and committed, then measured.

python benchmarks/step_time/simulated.py OUT.jsonl .../compiled_seventh.py:step name=NAME
python benchmarks/step_time/recording/one_by_one.py OUT SECONDS LIST
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from compiled_parts import tf32
from compiled_seventh_parts import Segments, StatesHandedOn, Told
from compiled_sixth import nano
from compiled_third import sizes_of
from torch import nn
from unseen import BF16, Step

from vramcast_zoo.suites.compiled import compile_update
from vramcast_zoo.suites.compiled_too import Block, Text, tokens
from vramcast_zoo.suites.training import training_step

LAST = {"memory_format": torch.channels_last}
FUSED: dict[str, Any] = {"optimizer": "adamw-fused"}
MIXED: dict[str, Any] = {"optimizer": "adamw-fused", "autocast": "bf16"}


# ------------------------------------------------------------------------ words
def language(name: str, sizes: dict[str, Any], batch: int, length: int, **how: Any) -> Step:
    """A model of transformers in bf16, or in fp32 under autocast, compiled whole."""
    import transformers

    config = getattr(transformers, f"{name}{how.pop('config', 'Config')}")(**sizes)
    config.use_cache = False
    model = getattr(transformers, f"{name}ForCausalLM")(config).cuda()
    if not how.get("autocast"):
        model = model.to(BF16)
    compiled = torch.compile(model, **how.pop("compiled", {}))
    x = tokens(config.vocab_size, batch, length)
    return training_step(lambda: compiled(input_ids=x, labels=x).loss, model.parameters(), **how)


def layer_by_layer(batch: int, length: int, layers: int) -> Step:
    """Qwen2.5 of 1.5 billion weights in bf16, each layer compiled; gradients of two are added."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = sizes_of(1536, 8960, layers, 12, 2, 151_936)
    config = Qwen2Config(**sizes, tie_word_embeddings=True, use_cache=False)
    model = Qwen2ForCausalLM(config).to("cuda", BF16)
    for layer in model.model.layers:
        layer.compile()
    x = tokens(151_936, batch, length)
    loss = lambda: model(input_ids=x, labels=x).loss  # noqa: E731
    return training_step(loss, model.parameters(), **FUSED, accumulate=2)


def pythia_again(batch: int, length: int, layers: int) -> Step:
    """Pythia of 410 million weights under autocast: layers compiled, and all computed again."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16}
    sizes |= {"num_hidden_layers": layers, "vocab_size": 50_304}
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, use_cache=False)).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for layer in model.gpt_neox.layers:
        layer.compile()
    x = tokens(50_304, batch, length)
    return training_step(lambda: model(input_ids=x, labels=x).loss, model.parameters(), **MIXED)


def t5(sizes: dict[str, Any], batch: int, length: int, told: int, **how: Any) -> Step:
    """T5 with dropout: in bf16 without autocast, else with weights in fp32."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(**sizes, vocab_size=32_128)
    config.use_cache, config.decoder_start_token_id = False, 0
    model = T5ForConditionalGeneration(config).cuda()
    if how.pop("bf16", False):
        model = model.to(BF16)
    compiled = torch.compile(model)
    x, labels = tokens(32_000, batch, length), tokens(32_000, batch, told)
    loss = lambda: compiled(input_ids=x, labels=labels).loss  # noqa: E731
    return training_step(loss, model.parameters(), **how)


def small_t5(batch: int, length: int, told: int, layers: int) -> Step:
    """T5 of small width with ReLU, in TF32, with Adafactor as those who made it trained it."""
    tf32()
    sizes = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8, "num_layers": layers}
    return t5(sizes, batch, length, told, optimizer="adafactor", clip=0.0)


def bart(batch: int, length: int, told: int, layers: int) -> Step:
    """BART of base width under autocast, its texts padded."""
    from transformers import BartConfig, BartForConditionalGeneration

    sizes: dict[str, Any] = {"d_model": 768, "use_cache": False}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": 12, f"{side}_ffn_dim": 3072}
    model = BartForConditionalGeneration(BartConfig(**sizes)).cuda()
    compiled = torch.compile(model)
    x, labels = 4 + tokens(50_000, batch, length), 4 + tokens(50_000, batch, told)
    given = {"input_ids": x, "attention_mask": padding(batch, length), "labels": labels}
    return training_step(lambda: compiled(**given).loss, model.parameters(), **MIXED)


def padding(batch: int, length: int) -> torch.Tensor:
    """1 where there are words: the shortest text has half as many as the longest one."""
    long = length - 3 * (torch.arange(batch, device="cuda") % (length // 6))
    return (torch.arange(length, device="cuda") < long[:, None]).long()


def hidden_words(batch: int, length: int, layers: int) -> Step:
    """BERT of base width: a seventh of the words is hidden, and only those are guessed."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(num_hidden_layers=layers)).cuda()
    compiled = torch.compile(model)
    x, place = 1000 + tokens(29_000, batch, length), torch.arange(length, device="cuda")
    hidden = place % 7 == 3
    told, labels = torch.where(hidden, 103, x), torch.where(hidden, x, -100)
    given = {"input_ids": told, "attention_mask": torch.ones_like(x), "labels": labels}
    return training_step(lambda: compiled(**given).loss, model.parameters(), **MIXED)


def kinds_of_texts(name: str, batch: int, length: int, layers: int, **how: Any) -> Step:
    """An encoder of transformers says which kind of two a padded text is."""
    import transformers

    config = getattr(transformers, f"{name}Config")(**how.pop("sizes", {}))
    config.num_hidden_layers, config.problem_type = layers, "single_label_classification"
    model = getattr(transformers, f"{name}ForSequenceClassification")(config).cuda()
    compiled = torch.compile(model, **how.pop("compiled", {}))
    x, labels = 1000 + tokens(29_000, batch, length), tokens(2, 1, batch)[0]
    given = {"input_ids": x, "attention_mask": padding(batch, length), "labels": labels}
    return training_step(lambda: compiled(**given).loss, model.parameters(), **how)


def ranks_of_queries(batch: int, length: int, layers: int) -> Step:
    """peft's LoRA of attention's products in a TinyLlama in bf16; gradients of two are added."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = sizes_of(2048, 5632, layers, 32, 4, 32_000)
    model = LlamaForCausalLM(LlamaConfig(**sizes, use_cache=False)).to("cuda", BF16)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    settings = LoraConfig(r=64, lora_alpha=16, lora_dropout=0.1, target_modules=targets)
    adapted = get_peft_model(model, settings)
    compiled = torch.compile(adapted)
    x = tokens(32_000, batch, length)
    loss = lambda: compiled(input_ids=x, labels=x).loss  # noqa: E731
    return training_step(loss, adapted.parameters(), **MIXED, accumulate=2)


def packed_documents(batch: int, length: int, *, width: int = 2048, layers: int = 3) -> Step:
    """FlexAttention: documents of many lengths are packed in each text, each sees its own past."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    place, text = torch.arange(length, device="cuda"), torch.arange(batch, device="cuda")
    document = (place + 977 * text[:, None]).square() // 3_000_000

    def seen(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (document[batch, q] == document[batch, k])

    mask = create_block_mask(seen, batch, None, length, length, device="cuda")
    attend = partial(flex_attention, block_mask=mask)
    blocks: list[nn.Module] = [Block(width, 16, 5632, attend, length=length) for _ in range(layers)]
    model = Text(32_000, width, blocks).cuda()
    compiled = torch.compile(model)
    x = tokens(32_000, batch, length)
    return training_step(lambda: compiled(x, x), model.parameters(), **MIXED)


def states_handed_on(batch: int, length: int, *, width: int = 768, layers: int = 3) -> Step:
    """Mamba-2's states by chunks, one after the other, in plain torch."""
    blocks: list[nn.Module] = [StatesHandedOn(width, 24, 2, 64, 128) for _ in range(layers)]
    model = Text(50_304, width, blocks).cuda()
    compiled = torch.compile(model)
    x = tokens(50_304, batch, length)
    return training_step(lambda: compiled(x, x), model.parameters(), **MIXED)


# ------------------------------------------------------------------------ pictures and sound
def pictures(model: nn.Module, batch: int, size: int, *, last: bool = False, **how: Any) -> Step:
    """Pictures of a thousand classes, the labels smoothed; all of it in bf16 without autocast."""
    layout = torch.channels_last if last else torch.contiguous_format
    dtype = torch.float32 if how.get("autocast") else BF16
    model = model.to("cuda", dtype).to(memory_format=layout)
    compiled = torch.compile(model, **how.pop("compiled", {}))
    x = torch.randn(batch, 3, size, size, device="cuda", dtype=dtype).to(memory_format=layout)
    labels = tokens(1000, 1, batch)[0]
    loss = lambda: F.cross_entropy(compiled(x).float(), labels, label_smoothing=0.1)  # noqa: E731
    return training_step(loss, model.parameters(), **how)


def of_timm(name: str, batch: int, size: int, *, sizes: Any = None, **how: Any) -> Step:
    import timm

    return pictures(timm.create_model(name, **(sizes or {})), batch, size, **how)


def base_vit(batch: int, layers: int) -> Step:
    """torchvision's vision transformer of base width with dropout, under autocast."""
    from torchvision.models import VisionTransformer

    model = VisionTransformer(224, 16, layers, 12, 768, 3072, dropout=0.1)
    return pictures(model, batch, 224, **MIXED)


def resnet_bf16(batch: int, size: int) -> Step:
    """torchvision's ResNet of 26 layers with all of its weights in bf16, channels last."""
    from torchvision.models.resnet import Bottleneck, ResNet

    model = ResNet(Bottleneck, [2, 2, 2, 2])
    return pictures(model, batch, size, last=True, optimizer="sgd", clip=0.0)


def mobile(batch: int, size: int) -> Step:
    """MobileNetV3 from torchvision with half of its blocks, channels last, momentum."""
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    sizes = [(16, 3, 64, 24, False, "RE", 2), (24, 5, 72, 40, True, "RE", 2)]
    sizes += [(40, 5, 120, 40, True, "RE", 1), (40, 3, 240, 80, False, "HS", 2)]
    sizes += [(80, 3, 480, 112, True, "HS", 1), (112, 5, 672, 160, True, "HS", 2)]
    model = MobileNetV3([InvertedResidualConfig(*each, 1, 1.0) for each in sizes], 1280)
    return pictures(model, batch, size, last=True, autocast="bf16", optimizer="sgd", clip=0.0)


def mixed_convnext(batch: int) -> Step:
    """ConvNeXt of tiny widths from torchvision; every picture is mixed with another one."""
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    widths, layers = (96, 192, 384, 768, None), (2, 1, 4, 1)
    blocks = [CNBlockConfig(*each) for each in zip(widths, widths[1:], layers)]
    model = ConvNeXt(blocks, stochastic_depth_prob=0.1).cuda().to(**LAST)
    compiled = torch.compile(model)
    x = torch.randn(batch, 3, 224, 224, device="cuda").to(**LAST)
    chances = F.one_hot(tokens(1000, 1, batch)[0], 1000).float()

    def loss() -> torch.Tensor:
        found = compiled(torch.lerp(x, x.flip(0), 0.3))
        return F.cross_entropy(found.float(), torch.lerp(chances, chances.flip(0), 0.3))

    return training_step(loss, model.parameters(), **MIXED)


def segments(batch: int, size: int) -> Step:
    """A U-Net by hand for 21 kinds of things: cross entropy and dice, channels last."""
    model = Segments(48, 4, 21).cuda().to(**LAST)
    x = torch.randn(batch, 3, size, size, device="cuda").to(**LAST)
    labels = torch.randint(0, 21, (batch, size, size), device="cuda")

    @torch.compile
    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = model(x).float()
        shares, wanted = scores.softmax(1), F.one_hot(labels, 21).permute(0, 3, 1, 2)
        both, all_of = (shares * wanted).sum((0, 2, 3)), (shares + wanted).sum((0, 2, 3))
        return F.cross_entropy(scores, labels) + 1 - (2 * both / (all_of + 1)).mean()

    how: dict[str, Any] = {"autocast": "bf16", "optimizer": "sgd", "clip": 0.0}
    return training_step(lambda: loss(x, labels), model.parameters(), **how)


def told_noise(batch: int, size: int, words: int) -> Step:
    """Stable Diffusion's U-Net of two levels in bf16, which looks at words on its way down."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=size,
        block_out_channels=(192, 384),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=1,
        mid_block_type=None,
        attention_head_dim=(3, 6),
        use_linear_projection=True,
        cross_attention_dim=1024,
    ).to("cuda", BF16)
    compiled = torch.compile(model)
    how: dict[str, Any] = {"device": "cuda", "dtype": BF16}
    x, told = torch.randn(batch, 4, size, size, **how), torch.randn(batch, words, 1024, **how)

    def loss() -> torch.Tensor:
        noise, times = torch.randn_like(x), tokens(1000, 1, batch)[0]
        share = (times / 1000).to(BF16)[:, None, None, None]
        found = compiled(torch.lerp(x, noise, share), times, told).sample
        return F.mse_loss(found.float(), noise.float())

    return training_step(loss, model.parameters(), **FUSED)


def told_pieces(batch: int, *, width: int = 1024, layers: int = 3) -> Step:
    """DiT by hand; AdamW's update is compiled, as is what follows the weights slowly."""
    model = Told(width, 16, layers, 32).cuda()
    slow = [weight.detach().clone() for weight in model.parameters()]
    compiled = torch.compile(model)
    x, names = torch.randn(batch, 4, 32, 32, device="cuda"), tokens(1000, 1, batch)[0]

    def loss() -> torch.Tensor:
        noise, share = torch.randn_like(x), torch.rand(batch, device="cuda")
        found = compiled(torch.lerp(x, noise, share[:, None, None, None]), share, names)
        return F.mse_loss(found.float(), noise - x)

    how: dict[str, Any] = {"autocast": "bf16", "prepare": compile_update, "clip": 0.0}
    train = training_step(loss, model.parameters(), **how)

    @torch.compile
    def follow() -> None:
        with torch.no_grad():
            torch._foreach_lerp_(slow, [weight.detach() for weight in model.parameters()], 1e-4)

    def step() -> torch.Tensor:
        found = train()
        follow()
        return found

    return step


def tiny_whisper(batch: int, told: int, layers: int) -> Step:
    """Whisper of tiny width with dropout, under autocast."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes: dict[str, Any] = {"d_model": 384, "dropout": 0.1, "use_cache": False}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": 6, f"{side}_ffn_dim": 1536}
    model = WhisperForConditionalGeneration(WhisperConfig(**sizes)).cuda()
    compiled = torch.compile(model)
    x, labels = torch.randn(batch, 80, 3000, device="cuda"), tokens(50_000, batch, told)
    loss = lambda: compiled(input_features=x, labels=labels).loss  # noqa: E731
    return training_step(loss, model.parameters(), **MIXED)


LLAMA: dict[str, Any] = sizes_of(2048, 8192, 4, 32, 8, 128_256) | {"tie_word_embeddings": True}
LLAMA["rope_parameters"] = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 32.0}
LLAMA["rope_parameters"] |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA["rope_parameters"] |= {"original_max_position_embeddings": 8192}
GEMMA = sizes_of(1152, 6912, 4, 4, 1, 262_144) | {"head_dim": 256, "sliding_window": 512}
GEMMA |= {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
MISTRAL = sizes_of(4096, 14_336, 2, 32, 8, 32_000) | {"sliding_window": 1024}
MIXTRAL = sizes_of(1024, 3584, 3, 16, 4, 32_000) | {"output_router_logits": True}
PHI = sizes_of(2048, 8192, 2, 32, 32, 51_200)
FLAN = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_heads": 12, "num_layers": 3}
FLAN |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
DEBERTA = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
DEBERTA |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 256}
DEBERTA |= {"norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False}
SWIN = {"depths": (1, 1, 2, 1), "drop_path_rate": 0.2}
SCALED: dict[str, Any] = {"autocast": "fp16", "scale_loss": True, "optimizer": "adamw-fused"}
STEPS: dict[str, Callable[[], Step]] = {
    "nano_dropped": lambda: nano(32, 1024, (50_304, 1024, 16, 4), dropout=0.1),
    "llama_of_a_billion": lambda: language("Llama", LLAMA, 5, 2048, **FUSED),
    "layer_by_layer": lambda: layer_by_layer(3, 2048, 4),
    "gemma3": lambda: language("Gemma3", GEMMA, 8, 1024, config="TextConfig", **FUSED),
    "mistral_near": lambda: language("Mistral", MISTRAL, 2, 4096, optimizer="adamw-foreach"),
    "mixtral": lambda: language("Mixtral", MIXTRAL, 24, 1024, **FUSED),
    "pythia_again": lambda: pythia_again(28, 1024, 4),
    "flan_t5": lambda: t5(FLAN, 96, 512, 128, bf16=True, **FUSED),
    "small_t5": lambda: small_t5(44, 768, 192, 3),
    "bart": lambda: bart(96, 512, 256, 2),
    "phi_dynamic": lambda: language("Phi", PHI, 20, 1024, compiled={"dynamic": True}, **FUSED),
    "hidden_words": lambda: hidden_words(320, 128, 4),
    "distilbert_fp16": lambda: kinds_of_texts("DistilBert", 320, 256, 4, **SCALED),
    "electra_in_graphs": lambda: kinds_of_texts(
        "Electra",
        640,
        128,
        4,
        sizes={"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        compiled={"mode": "reduce-overhead"},
        **MIXED,
    ),
    "deberta": lambda: kinds_of_texts("DebertaV2", 96, 384, 3, sizes=DEBERTA, **MIXED),
    "ranks_of_queries": lambda: ranks_of_queries(4, 2048, 4),
    "packed_documents": lambda: packed_documents(2, 8192),
    "states_handed_on": lambda: states_handed_on(64, 512),
    "base_vit": lambda: base_vit(352, 5),
    "swin": lambda: of_timm("swin_tiny_patch4_window7_224", 384, 224, sizes=SWIN, **MIXED),
    "resnet_bf16": lambda: resnet_bf16(384, 256),
    "mobile": lambda: mobile(1024, 224),
    "mixed_convnext": lambda: mixed_convnext(320),
    "segments": lambda: segments(48, 320),
    "told_noise": lambda: told_noise(320, 32, 77),
    "told_pieces": lambda: told_pieces(320),
    "tiny_whisper": lambda: tiny_whisper(96, 128, 3),
}


def step(*, name: str) -> Step:
    return STEPS[name]()
