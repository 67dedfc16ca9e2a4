"""Programs of recent papers: attention of other kinds, flows, samplers that learn from rewards."""

from __future__ import annotations

from lists.listed import ENCYCLOPEDIA, Listed

FLOWS = "GFNOrg/torchgfn"
# a small one of its models, compiled as it always is
CHAT = (
    "NANOCHAT_BASE_DIR=DATA/chat python -m scripts.base_train --depth=4 --max-seq-len=512 "
    "--device-batch-size=8 --eval-tokens=16384 --core-metric-every=-1"
)

PROGRAMS = [
    Listed(
        "implicit_attention",
        "lucidrains/titans-pytorch",
        ".",
        "python train_implicit_mlp_attn.py",
        ENCYCLOPEDIA,
    ),
    Listed(
        "infinite_attention",
        "lucidrains/infini-transformer-pytorch",
        ".",
        "python train.py",
        ENCYCLOPEDIA,
    ),
    Listed(
        "hierarchical_transformer",
        "lucidrains/simple-hierarchical-transformer",
        ".",
        "python train.py",
        ENCYCLOPEDIA,
    ),
    # how long a path is, and so every size, is decided by what was sampled
    Listed(
        "paths_on_a_grid",
        FLOWS,
        ".",
        "python tutorials/examples/train_hypergrid.py --ndim 4 --height 16 --batch_size 1024",
        beside=("src",),
    ),
    # its own check refuses actions that were not computed
    Listed(
        "paths_in_a_box",
        FLOWS,
        ".",
        "python tutorials/examples/train_box.py --batch_size 1024",
        beside=("src",),
    ),
    Listed(
        "flow_matching_pictures",
        "facebookresearch/flow_matching",
        "examples/image",
        "python train.py --dataset imagenet --data_path DATA/small_pictures --batch_size 16 "
        "--output_dir DATA/out --num_workers 2 --skewed_timesteps --class_drop_prob 0.2 "
        "--ode_method heun2",
        beside=("flow_matching",),
    ),
    Listed("gated_averages", "lucidrains/Mega-pytorch", ".", "python train.py", ENCYCLOPEDIA),
    Listed(
        "x_transformers_muon",
        "lucidrains/x-transformers",
        ".",
        "python train_with_muon.py",
        ENCYCLOPEDIA,
    ),
    *(
        Listed(
            f"vector_quantize_{name}",
            "lucidrains/vector-quantize-pytorch",
            ".",
            f"env HOME=. python examples/autoencoder_{name}.py",
            (("data/fashion_mnist/FashionMNIST", "clothes/FashionMNIST"),),
        )
        for name in ("fsq", "lfq", "sim_vq")
    ),
    Listed("chat_from_nothing", "karpathy/nanochat", ".", CHAT),
    Listed("chat_from_nothing_fp8", "karpathy/nanochat", ".", f"{CHAT} --fp8"),
    # compiles CUDA kernels of its own, and its layers are torch.jit.ScriptModule
    Listed(
        "recurrent_rwkv7",
        "BlinkDL/RWKV-LM",
        "RWKV-v7/train_temp",
        "WANDB_MODE=offline python rwkv7_train_simplified.py",
    ),
]
