"""Programs of kinds that the other lists lack: speech, volumes, energies, experts, curvature."""

from __future__ import annotations

from lists.listed import Listed

PROGRAMS = [
    # a penalty on the gradient of a gradient
    Listed(
        "invariant_risk",
        "facebookresearch/InvariantRiskMinimization",
        "code/colored_mnist",
        "env HOME=. python -u main.py",
        (("code/colored_mnist/datasets/mnist/MNIST", "sixty_thousand/MNIST"),),
    ),
    # an energy, learned with samples of Langevin dynamics
    Listed("energy_rings", "point0bar1/ebm-anatomy", ".", "python train_toy.py"),
    Listed(
        "noise_suppression",
        "xiph/rnnoise",
        "torch/rnnoise",
        "python train_rnnoise.py DATA/speech/features.f32 DATA/out/rnnoise --batch-size 32",
        beside=("torch/sparsification",),
    ),
    # an optimizer that estimates the curvature
    Listed(
        "sophia_gpt2",
        "Liuhong99/Sophia",
        ".",
        "python train_sophiag.py config/train_gpt2_small_sophiag.py --compile=False "
        "--wandb_log=False --eval_iters=10",
        tuple((f"data/openwebtext/{part}.bin", f"web/{part}.bin") for part in ("train", "val")),
    ),
    Listed("mixture_of_experts", "davidmrau/mixture-of-experts", ".", "python example.py"),
    Listed(
        "volumes_unet",
        "Project-MONAI/tutorials",
        "3d_segmentation/torch",
        "python unet_training_array.py",
    ),
]
