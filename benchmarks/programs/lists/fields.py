"""Programs of fields that the other lists do not have, most of them published after 2023."""

from __future__ import annotations

from lists.listed import ENCYCLOPEDIA, LIGHTNING, Listed

PROGRAMS = [
    Listed(
        "discrete_diffusion_mnist",
        "cloneofsimo/d3pm",
        ".",
        "python d3pm_runner.py",
        (("data/MNIST", "MNIST"), ("contents", "out")),
    ),
    Listed(
        "denoising_digits",
        "explainingai-code/DDPM-Pytorch",
        ".",
        "python -m tools.train_ddpm",
        (("data/train/images", "digits"),),
    ),
    Listed("gateloop", "lucidrains/gateloop-transformer", ".", "python train.py", ENCYCLOPEDIA),
    Listed(
        "fabric_ppo",
        LIGHTNING,
        "examples/fabric/reinforcement_learning",
        "fabric run --accelerator=cuda --devices=1 train_fabric.py",
    ),
    Listed(
        "latent_sde",
        "google-research/torchsde",
        ".",
        "python -m examples.latent_sde --train-dir DATA/out/latent_sde",
        beside=("torchsde",),
    ),
    Listed(
        "gpt_vae",
        "lucidrains/x-transformers",
        ".",
        "python train_gpt_vae.py",
        ENCYCLOPEDIA,
    ),
    Listed(
        "x_transformers_enwik8",
        "lucidrains/x-transformers",
        ".",
        "python train_enwik8.py",
        ENCYCLOPEDIA,
    ),
    Listed(
        "ppo_without_fabric",
        LIGHTNING,
        "examples/fabric/reinforcement_learning",
        "torchrun --nproc_per_node=1 train_torch.py --cuda",
    ),
    Listed(
        "native_sparse_attention",
        "lucidrains/native-sparse-attention-pytorch",
        ".",
        "python train.py",
        ENCYCLOPEDIA,
    ),
    Listed(
        "block_recurrent",
        "lucidrains/block-recurrent-transformer-pytorch",
        ".",
        "accelerate launch --num_processes 1 --mixed_precision no train.py",
        ENCYCLOPEDIA,
    ),
]
