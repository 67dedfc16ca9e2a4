"""Models that make images: diffusers, denoising-diffusion-pytorch, GANs, flows, codebooks."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def unconditional_unet(
    *, batch_size: int = 8, image_size: int = 64, autocast: str = "", ema: bool = False
) -> Step:
    """As diffusers' example trains it, with a moving average of the weights if asked for."""
    from diffusers import DDPMScheduler, UNet2DModel

    model = UNet2DModel(
        sample_size=image_size,
        block_out_channels=(128, 128, 256, 256, 512, 512),
        down_block_types=(*["DownBlock2D"] * 4, "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", *["UpBlock2D"] * 4),
    ).cuda()
    scheduler = DDPMScheduler(num_train_timesteps=1000)
    images = torch.randn(batch_size, 3, image_size, image_size, device="cuda")

    def loss() -> torch.Tensor:
        noise = torch.randn_like(images)
        times = torch.randint(0, 1000, (batch_size,), device="cuda")
        noisy = scheduler.add_noise(images, noise, times)
        return F.mse_loss(model(noisy, times).sample, noise)

    step = training_step(loss, model.parameters(), autocast=autocast)
    if not ema:
        return step
    from ema_pytorch import EMA

    average = EMA(model, update_after_step=0, update_every=1)

    def step_with_average() -> torch.Tensor:
        result = step()
        average.update()
        return result

    return step_with_average


def text_to_image(
    *,
    batch_size: int = 4,
    latent_size: int = 32,
    autocast: str = "bf16",
    checkpointing: bool = False,
) -> Step:
    """A U-Net with cross attention, a third of Stable Diffusion's width."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=latent_size, block_out_channels=(128, 256, 512, 512), cross_attention_dim=768
    ).cuda()
    if checkpointing:
        model.enable_gradient_checkpointing()
    latents = torch.randn(batch_size, 4, latent_size, latent_size, device="cuda")
    text = torch.randn(batch_size, 77, 768, device="cuda")

    def loss() -> torch.Tensor:
        times = torch.randint(0, 1000, (batch_size,), device="cuda")
        return F.mse_loss(model(latents, times, text).sample, torch.randn_like(latents))

    return training_step(loss, model.parameters(), autocast=autocast)


def image_autoencoder(*, batch_size: int = 4, image_size: int = 128, autocast: str = "") -> Step:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(64, 128, 256),
        down_block_types=["DownEncoderBlock2D"] * 3,
        up_block_types=["UpDecoderBlock2D"] * 3,
        layers_per_block=2,
        norm_num_groups=32,
    ).cuda()
    images = torch.randn(batch_size, 3, image_size, image_size, device="cuda")

    def loss() -> torch.Tensor:
        latent = model.encode(images).latent_dist
        rebuilt = model.decode(latent.sample()).sample
        return F.mse_loss(rebuilt, images) + 1e-6 * latent.kl().mean()

    return training_step(loss, model.parameters(), autocast=autocast)


def diffusion_transformer(*, batch_size: int = 16, autocast: str = "bf16") -> Step:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=6, attention_head_dim=64, in_channels=4, num_layers=12, sample_size=32
    ).cuda()
    latents = torch.randn(batch_size, 4, 32, 32, device="cuda")
    labels = torch.randint(0, 1000, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        times = torch.randint(0, 1000, (batch_size,), device="cuda")
        return F.mse_loss(model(latents, times, labels).sample, torch.randn_like(latents))

    return training_step(loss, model.parameters(), autocast=autocast)


def pixel_diffusion(*, batch_size: int = 16, image_size: int = 32) -> Step:
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    unet = Unet(dim=64, dim_mults=(1, 2, 4), flash_attn=False)
    model = GaussianDiffusion(unet, image_size=image_size, timesteps=1000).cuda()
    images = torch.rand(batch_size, 3, image_size, image_size, device="cuda")
    return training_step(lambda: model(images), model.parameters())


def _generator(width: int) -> nn.Module:
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, width * 8, 4, 1, 0, bias=False)]
    for factor in (8, 4, 2):
        layers += [nn.BatchNorm2d(width * factor), nn.ReLU(True)]
        layers += [nn.ConvTranspose2d(width * factor, width * factor // 2, 4, 2, 1, bias=False)]
    layers += [nn.BatchNorm2d(width), nn.ReLU(True)]
    layers += [nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


def _discriminator(width: int, normalize: bool) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for factor in (1, 2, 4):
        layers += [nn.Conv2d(width * factor, width * factor * 2, 4, 2, 1, bias=False)]
        layers += [nn.BatchNorm2d(width * factor * 2)] if normalize else []
        layers += [nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Flatten(0))


def gan(
    *, batch_size: int = 128, width: int = 64, penalty: bool = False, benchmark: bool = False
) -> Step:
    """DCGAN; with `penalty` the critic's gradient is differentiated again, as WGAN-GP does."""
    torch.backends.cudnn.benchmark = benchmark
    make, judge = _generator(width).cuda(), _discriminator(width, not penalty).cuda()
    updates = [
        torch.optim.Adam(net.parameters(), 2e-4, betas=(0.5, 0.999)) for net in (judge, make)
    ]
    real = torch.randn(batch_size, 3, 64, 64, device="cuda")

    def gradient_penalty(fake: torch.Tensor) -> torch.Tensor:
        share = torch.rand(batch_size, 1, 1, 1, device="cuda")
        mixed = (share * real + (1 - share) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
        return (slope.flatten(1).norm(dim=1) - 1).square().mean()

    def step() -> torch.Tensor:
        noise = torch.randn(batch_size, 100, 1, 1, device="cuda")
        fake = make(noise)
        updates[0].zero_grad()
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        if penalty:
            loss = loss + 10 * gradient_penalty(fake.detach())
        loss.backward()
        updates[0].step()
        updates[1].zero_grad()
        fooled = F.softplus(-judge(fake)).mean()
        fooled.backward()
        updates[1].step()
        return fooled.detach()

    return step


def flow(*, batch_size: int = 4096, features: int = 64) -> Step:
    """A normalizing flow of splines."""
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import (
        CompositeTransform,
        MaskedPiecewiseRationalQuadraticAutoregressiveTransform,
        ReversePermutation,
    )

    layers = []
    for _ in range(4):
        layers += [
            ReversePermutation(features),
            MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
                features, 256, num_bins=8, tails="linear", tail_bound=3.0
            ),
        ]
    model = Flow(CompositeTransform(layers), StandardNormal([features])).cuda()
    data = torch.randn(batch_size, features, device="cuda")
    return training_step(lambda: -model.log_prob(data).mean(), model.parameters())


def codebook(*, batch_size: int = 32, image_size: int = 128) -> Step:
    """An autoencoder whose middle is quantized to a table of vectors."""
    from vector_quantize_pytorch import VectorQuantize

    encoder = nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(64, 128, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(128, 128, 3, 1, 1),
    ).cuda()
    decoder = nn.Sequential(
        nn.Conv2d(128, 128, 3, 1, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(64, 3, 4, 2, 1),
    ).cuda()
    table = VectorQuantize(dim=128, codebook_size=1024, accept_image_fmap=True).cuda()
    images = torch.randn(batch_size, 3, image_size, image_size, device="cuda")

    def loss() -> torch.Tensor:
        quantized, _, commitment = table(encoder(images))
        return F.mse_loss(decoder(quantized), images) + commitment.sum()

    return training_step(loss, [*encoder.parameters(), *decoder.parameters()])
