"""How people train what libraries give them: loops of accelerate, LoRA, EMA, mixup, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step
from vramcast_zoo.suites.wide.heads import padded, small, token_ids

Step = Callable[[], torch.Tensor]


def accelerated(*, batch_size: int = 8, parts: int = 2, length: int = 192) -> Step:
    """Accelerate's loop: a loader with a short last batch, accumulation, bf16, a schedule."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset
    from transformers import BertConfig, BertForSequenceClassification, get_scheduler

    helper = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=parts)
    model = BertForSequenceClassification(BertConfig(**small(num_labels=3)))
    update = torch.optim.AdamW(model.parameters(), lr=2e-5)
    total = batch_size * 3 + batch_size // 2
    data = TensorDataset(torch.randint(5, 8000, (total, length)), torch.randint(0, 3, (total,)))
    loader = DataLoader(data, batch_size, shuffle=True)
    plan = get_scheduler("cosine", update, 10, 1000)
    model, update, loader, plan = helper.prepare(model, update, loader, plan)

    def step() -> torch.Tensor:
        total_loss = torch.zeros((), device="cuda")
        for ids, labels in loader:
            with helper.accumulate(model):
                loss = model(input_ids=ids, labels=labels).loss
                total_loss += loss.detach().float()
                helper.backward(loss)
                if helper.sync_gradients:
                    helper.clip_grad_norm_(model.parameters(), 1.0)
                update.step()
                plan.step()
                update.zero_grad()
        return total_loss

    return step


def adapted_picture_maker(*, batch_size: int = 2, size: int = 32, rank: int = 8) -> Step:
    """LoRA on a text-to-image network, as in diffusers' examples: fp16 weights, few learn."""
    from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
    from diffusers.training_utils import cast_training_params, compute_snr
    from peft import LoraConfig
    from transformers import CLIPTextConfig, CLIPTextModel

    unet = UNet2DConditionModel(
        block_out_channels=(64, 128, 256), cross_attention_dim=256, layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    ).requires_grad_(False)  # fmt: skip
    eyes = AutoencoderKL(
        block_out_channels=(32, 64, 64, 64), latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
    ).requires_grad_(False)  # fmt: skip
    reads = CLIPTextModel(CLIPTextConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4
    )).requires_grad_(False)  # fmt: skip
    for frozen in (unet, eyes, reads):
        frozen.to("cuda", torch.float16)
    where = ["to_k", "to_q", "to_v", "to_out.0"]
    unet.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=where))
    cast_training_params(unet, dtype=torch.float32)
    plan = DDPMScheduler()
    images = torch.randn(batch_size, 3, 8 * size, 8 * size, device="cuda", dtype=torch.float16)
    ids = torch.randint(0, 40_000, (batch_size, 77), device="cuda")

    def loss() -> torch.Tensor:
        latents = eyes.encode(images).latent_dist.sample() * eyes.config.scaling_factor
        noise = torch.randn_like(latents)
        t = torch.randint(0, 1000, (batch_size,), device="cuda")
        words = reads(ids, return_dict=False)[0]
        made = unet(plan.add_noise(latents, noise, t), t, words, return_dict=False)[0]
        weight = compute_snr(plan, t).clamp(max=5.0)
        each = F.mse_loss(made.float(), noise.float(), reduction="none").mean((1, 2, 3))
        return (each * weight).mean()

    return training_step(loss, unet.parameters(), autocast="fp16", scale_loss=True)


def picture_transformer(*, kind: str = "pixart", batch_size: int = 4, size: int = 32) -> Step:
    """More transformers of diffusers: for pictures, and for latents of clips."""
    import diffusers

    words = torch.randn(batch_size, 60, 256, device="cuda")
    t = torch.randint(0, 1000, (batch_size,), device="cuda")
    if kind == "pixart":
        model: nn.Module = diffusers.PixArtTransformer2DModel(
            num_attention_heads=6, attention_head_dim=48, in_channels=4, out_channels=4,
            num_layers=4, cross_attention_dim=288, sample_size=size, caption_channels=256,
            use_additional_conditions=False,
        ).cuda()  # fmt: skip
        x = torch.randn(batch_size, 4, size, size, device="cuda")
        given: dict[str, Any] = {
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
            "encoder_attention_mask": padded(batch_size, 60).float(),
        }
    elif kind == "sana":
        model = diffusers.SanaTransformer2DModel(
            in_channels=8, out_channels=8, num_attention_heads=6, attention_head_dim=32,
            num_layers=3, num_cross_attention_heads=6, cross_attention_head_dim=32,
            cross_attention_dim=192, caption_channels=256, sample_size=size,
        ).cuda()  # fmt: skip
        x, given = torch.randn(batch_size, 8, size, size, device="cuda"), {}
    else:
        model = diffusers.WanTransformer3DModel(
            num_attention_heads=4, attention_head_dim=64, in_channels=8, out_channels=8,
            text_dim=256, freq_dim=64, ffn_dim=512, num_layers=3,
        ).cuda()  # fmt: skip
        model.enable_gradient_checkpointing()
        x, given = torch.randn(batch_size, 8, 5, size, size, device="cuda"), {}

    def loss() -> torch.Tensor:
        made = model(x, encoder_hidden_states=words, timestep=t, return_dict=False, **given)[0]
        return F.mse_loss(made, x)

    return training_step(loss, model.parameters(), autocast="bf16")


def consistent(*, batch_size: int = 16, size: int = 32) -> Step:
    """Consistency training of a network of diffusers, whose teacher is a moving average."""
    import copy

    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=size, block_out_channels=(64, 128, 128), layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    ).cuda()  # fmt: skip
    slow = copy.deepcopy(model).requires_grad_(False)
    images = torch.randn(batch_size, 3, size, size, device="cuda")
    update = torch.optim.RAdam(model.parameters(), lr=1e-4)
    sigmas = torch.linspace(0.02, 80, 40, device="cuda")

    def step() -> torch.Tensor:
        noise = torch.randn_like(images)
        at = torch.randint(0, 39, (batch_size,), device="cuda")
        near, far = (sigmas[i][:, None, None, None] for i in (at, at + 1))
        made = model(images + far * noise, far.flatten()).sample
        with torch.no_grad():
            goal = slow(images + near * noise, near.flatten()).sample
        apart = ((made - goal).square() + 0.03**2).sqrt() - 0.03
        loss = (apart.mean((1, 2, 3)) / (far - near).flatten()).mean()
        update.zero_grad()
        loss.backward()
        update.step()
        with torch.no_grad():
            for old, new in zip(slow.parameters(), model.parameters()):
                old.lerp_(new, 0.05)
        return loss.detach()

    return step


def recipe_of_timm(
    *, name: str = "repvgg_a0", batch_size: int = 32, image_size: int = 160, dtype: str = "bf16",
    channels_last: bool = False, benchmark: bool = False, optimizer: str = "lamb",
) -> Step:  # fmt: skip
    """timm's own recipe: mixup, erasing, soft labels, its optimizers, EMA, adaptive clipping."""
    import random

    import numpy as np
    import timm
    from timm.data import Mixup
    from timm.data.random_erasing import RandomErasing
    from timm.loss import BinaryCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3, NativeScaler

    torch.backends.cudnn.benchmark = benchmark
    model = timm.create_model(name, num_classes=100, drop_rate=0.1).cuda().train()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    mix = Mixup(0.8, 1.0, label_smoothing=0.1, num_classes=100)
    erase = RandomErasing(0.25, mode="pixel", device="cuda")
    judge, scaler = BinaryCrossEntropy(smoothing=0.0), NativeScaler()
    update = create_optimizer_v2(model, optimizer, lr=1e-3, weight_decay=0.02)
    slow = ModelEmaV3(model, decay=0.999, use_warmup=True)
    bytes_of = torch.randint(0, 255, (batch_size, 3, image_size, image_size), dtype=torch.uint8)
    labels = torch.randint(0, 100, (batch_size,)).cuda()
    mean = torch.tensor([123.7, 116.3, 103.5], device="cuda").view(1, 3, 1, 1)

    def step() -> torch.Tensor:
        random.seed(1)
        np.random.seed(1)
        images = bytes_of.cuda(non_blocking=True).float().sub_(mean).div_(58.0)
        images, soft = mix(erase(images), labels)
        images = images.contiguous(memory_format=layout)
        amp = torch.float16 if dtype == "fp16" else torch.bfloat16
        with torch.autocast("cuda", dtype=amp, enabled=bool(dtype)):
            loss = judge(model(images), soft)
        update.zero_grad()
        scaler(loss, update, clip_grad=0.02, clip_mode="agc", parameters=model.parameters())
        slow.update(model)
        return loss.detach()

    return step


def scored(*, batch_size: int = 32, size: int = 96) -> Step:
    """Metrics of torchmetrics are kept while a network of torchvision with two heads trains."""
    import torchmetrics
    import torchvision

    model = torchvision.models.googlenet(
        weights=None, init_weights=False, aux_logits=True, num_classes=20
    ).cuda()
    kinds = {"task": "multiclass", "num_classes": 20}
    metrics = torchmetrics.MetricCollection([
        torchmetrics.Accuracy(**kinds), torchmetrics.F1Score(**kinds, average="macro"),
        torchmetrics.AUROC(**kinds, thresholds=100), torchmetrics.ConfusionMatrix(**kinds),
        torchmetrics.CalibrationError(**kinds),
    ]).cuda()  # fmt: skip
    sharp = torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0).cuda()
    images = torch.rand(batch_size, 3, size, size, device="cuda")
    labels = torch.randint(0, 20, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        made = model(images)
        metrics.update(made.logits.detach().softmax(-1), labels)
        with torch.no_grad():
            sharp(images, F.avg_pool2d(images, 3, 1, 1))
        aux = F.cross_entropy(made.aux_logits1, labels) + F.cross_entropy(made.aux_logits2, labels)
        return F.cross_entropy(made.logits, labels) + 0.3 * aux

    inner = training_step(loss, model.parameters(), optimizer="sgd")

    def step() -> torch.Tensor:
        made = inner()
        metrics.compute()
        metrics.reset()
        sharp.reset()
        return made

    return step


def bonds(*, kind: str = "gine", batch_size: int = 96, nodes: int = 24, width: int = 128) -> Step:
    """Molecules with features on bonds, or users and items (torch_geometric)."""
    import torch_geometric.nn as pyg

    total = batch_size * nodes
    links = torch.randint(0, nodes, (2, 3 * total), device="cuda")
    links = links + torch.arange(batch_size, device="cuda").repeat_interleave(3 * nodes) * nodes
    x, e = torch.randn(total, width, device="cuda"), torch.randn(3 * total, 16, device="cuda")
    batch = torch.arange(batch_size, device="cuda").repeat_interleave(nodes)
    wanted = torch.randn(batch_size, 1, device="cuda")
    if kind == "attentive":
        model = pyg.AttentiveFP(width, width, 1, 16, num_layers=3, num_timesteps=2).cuda()
        return training_step(
            lambda: F.mse_loss(model(x, links, e, batch), wanted), model.parameters()
        )
    if kind == "lightgcn":
        model = pyg.LightGCN(total, 64, 3).cuda()
        pairs = torch.randint(0, total, (2, 4096), device="cuda")
        other = torch.stack([pairs[0], pairs[1].flip(0)])

        def ranked() -> torch.Tensor:
            good = model(links, pairs)
            return model.recommendation_loss(good, model(links, other), pairs.unique())

        return training_step(ranked, model.parameters())

    def layer() -> nn.Module:
        inner = nn.Sequential(nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(),
                              nn.Linear(2 * width, width))  # fmt: skip
        return pyg.GINEConv(inner, train_eps=True, edge_dim=16)

    layers = nn.ModuleList(layer() for _ in range(4)).cuda()
    jump, pool = pyg.JumpingKnowledge("lstm", width, 4).cuda(), pyg.SAGPooling(width, 0.6).cuda()
    last = pyg.GATv2Conv(width, 32, heads=4, edge_dim=None).cuda()
    leave = nn.Linear(128, 1).cuda()

    def loss() -> torch.Tensor:
        h, seen = x, []
        for each in layers:
            h = each(h, links, e).relu()
            seen.append(h)
        h, kept, _, part, _, _ = pool(jump(seen), links, None, batch)
        return F.mse_loss(leave(pyg.global_add_pool(last(h, kept), part, batch_size)), wanted)

    every = nn.ModuleList([layers, jump, pool, last, leave])
    return training_step(loss, every.parameters())


def volumes_in_windows(*, kind: str = "windows", size: int = 64, batch_size: int = 2) -> Step:
    """monai: training on crops and an evaluation by sliding windows, or diffusion of volumes."""
    from monai.inferers import sliding_window_inference
    from monai.losses import GeneralizedDiceFocalLoss
    from monai.networks import nets

    if kind == "diffusion":
        unet = nets.DiffusionModelUNet(
            3, 1, 1, num_res_blocks=(1, 1, 1), channels=(32, 64, 64), norm_num_groups=16,
            attention_levels=(False, False, True), num_head_channels=32,
        ).cuda()  # fmt: skip
        volume = torch.randn(batch_size, 1, size // 2, size // 2, size // 2, device="cuda")
        t = torch.randint(0, 1000, (batch_size,), device="cuda")
        return training_step(
            lambda: F.mse_loss(unet(volume, t), volume), unet.parameters(), autocast="bf16"
        )
    model = nets.BasicUNetPlusPlus(3, 1, 3, features=(16, 16, 32, 64, 64, 16)).cuda()
    judge = GeneralizedDiceFocalLoss(softmax=True, to_onehot_y=True)
    crops = torch.randn(batch_size, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 3, (batch_size, 1, size, size, size), device="cuda")
    whole = torch.randn(1, 1, size + 40, size + 40, size, device="cuda")
    inner = training_step(
        lambda: judge(model(crops)[0], labels), model.parameters(), autocast="bf16"
    )

    def step() -> torch.Tensor:
        model.train()
        made = inner()
        model.eval()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            sliding_window_inference(
                whole, (size,) * 3, 4, lambda x: model(x)[0], overlap=0.5, mode="gaussian"
            ).argmax(1)
        return made

    return step


def adaptive_ranks(*, batch_size: int = 4, length: int = 256) -> Step:
    """AdaLoRA on T5: ranks are given and taken by what singular values matter (peft)."""
    import peft
    from transformers import T5Config, T5ForConditionalGeneration

    shape = T5Config(vocab_size=8000, d_model=384, d_kv=64, d_ff=1024, num_layers=4, num_heads=6,
                     decoder_start_token_id=0)  # fmt: skip
    config = peft.AdaLoraConfig(
        task_type="SEQ_2_SEQ_LM", init_r=12, target_r=6, total_step=500, tinit=1, tfinal=100,
        deltaT=1, target_modules=["q", "v"],
    )  # fmt: skip
    model = peft.get_peft_model(T5ForConditionalGeneration(shape), config).cuda()
    ids, labels = token_ids(batch_size, length), token_ids(batch_size, length // 2)
    inner = training_step(
        lambda: model(input_ids=ids, labels=labels).loss,
        [p for p in model.parameters() if p.requires_grad], clip=0,
    )  # fmt: skip
    return inner
