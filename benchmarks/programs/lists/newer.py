"""Programs for tables, proteins, equations, tours and emergent languages, and more trainers."""

from __future__ import annotations

from lists.listed import Listed

PROGRAMS = [
    Listed(
        "nano_tab_pfn",
        "automl/nanoTabPFN",
        ".",
        "python train.py",
        (("300k_150x5_2.h5", "tables/300k_150x5_2.h5"),),
    ),
    Listed(
        "protein_mpnn",
        "dauparas/ProteinMPNN",
        "training",
        "python training.py --path_for_training_data DATA/proteins "
        "--path_for_outputs DATA/out/protein_mpnn",
    ),
    Listed(
        "transfusion_text",
        "lucidrains/transfusion-pytorch",
        ".",
        "python train_text_only.py",
        (("data/enwik8/enwik8.gz", "enwik8.gz"),),
    ),
    Listed(
        "transfusion_digits",
        "lucidrains/transfusion-pytorch",
        ".",
        "python train_mnist.py",
        (("data/mnist/MNIST", "MNIST"),),
    ),
    # learns to find tours by reinforcement, and checks that each is allowed
    Listed(
        "learn_to_route",
        "wouterkool/attention-learn-to-route",
        ".",
        "env PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python python run.py --graph_size 20 "
        "--baseline rollout --run_name tsp20_rollout "
        "--epoch_size 12800 --val_size 1024 --no_tensorboard --output_dir DATA/out/route",
    ),
    Listed(
        "deepxde_burgers",
        "lululxvi/deepxde",
        "examples/pinn_forward",
        "env DDE_BACKEND=pytorch python Burgers.py",
        beside=("examples/dataset",),
    ),
    Listed(
        "deepxde_kovasznay",
        "lululxvi/deepxde",
        "examples/pinn_forward",
        "env DDE_BACKEND=pytorch python Kovasznay_flow.py",
    ),
    # agents that learn a language by reinforcement
    Listed(
        "emergent_language",
        "facebookresearch/EGG",
        ".",
        "python -m egg.zoo.compo_vs_generalization.train --n_values=50 --n_attributes=2 "
        "--vocab_size=100 --max_len=3 --batch_size=5120 --sender_cell=gru --receiver_cell=gru "
        "--random_seed=1 --n_epochs=5",
        beside=("egg",),
    ),
    Listed(
        "agents_draw_digits",
        "facebookresearch/EGG",
        ".",
        "python -m egg.zoo.mnist_vae.train --n_epochs=2",
        (("data/MNIST", "MNIST"),),
        ("egg",),
    ),
]
