"""Programs of kinds that the other lists do not have."""

from __future__ import annotations

from lists.listed import DIGITS_OF_EXAMPLES, EXAMPLES, Listed

PROGRAMS = [
    Listed(
        "kan_mnist",
        "Blealtan/efficient-kan",
        "src",
        "python ../examples/mnist.py",
        (("src/data/MNIST", "MNIST"),),
        ("examples",),
    ),
    Listed(
        "muon_airbench",
        "KellerJordan/cifar10-airbench",
        ".",
        "python airbench94_muon.py",
        (("cifar10", "colours"),),
    ),
    Listed(
        "lightgcn",
        "gusye1234/LightGCN-PyTorch",
        "code",
        "python main.py --decay=1e-4 --lr=0.001 --layer=3 --seed=2020 --dataset=lastfm "
        "--topks=[20] --recdim=64",
        beside=("data/lastfm",),
    ),
    Listed(
        "equivariant_bodies",
        "vgsatorras/egnn",
        ".",
        "python -u main_nbody.py --exp_name exp_1_egnn_vel --model egnn_vel "
        "--max_training_samples 3000 --lr 5e-4",
        (("n_body_system/dataset", "bodies"),),
    ),
    Listed(
        "ijepa",
        "facebookresearch/ijepa",
        ".",
        "python main.py --fname DATA/ijepa.yaml --devices cuda:0",
    ),
    *(
        Listed(
            f"segmentation_{name}",
            "LeeJunHyun/Image_Segmentation",
            ".",
            f"python main.py --model_type {model} --batch_size 4 --num_workers 2",
            (("dataset", "skin"),),
        )
        for name, model in (("unet", "U_Net"), ("recurrent_attention", "R2AttU_Net"))
    ),
    Listed(
        "adaptive_span",
        "facebookresearch/adaptive-span",
        ".",
        "python main.py --data DATA/words --nlayers 8 --hid-sz 256 --inner-hid-sz 1024 --nheads 4 "
        "--attn-span 1024 --block-sz 256 --batch-sz 16 --lr 0.07 --momentum 0 --dropout 0 "
        "--optim adagrad --lr-warmup 8000 --grad-clip 0.03 --niter 150 --nbatches 1000 "
        "--adapt-span --adapt-span-loss 0.000002 --adapt-span-cache",
    ),
    # without a seed its crops have other lengths each time
    *(
        Listed(
            f"ts2vec{name}",
            "yuezhihan/ts2vec",
            ".",
            "python train.py load runs --loader forecast_npy --repr-dims 320 --batch-size 8 "
            f"--eval{more}",
            (("datasets", "series"),),
        )
        for name, more in (("", ""), ("_seeded", " --seed 42"))
    ),
    Listed(
        "rectified_flow_mnist",
        "cloneofsimo/minRF",
        ".",
        "python rf.py",
        (("data/MNIST", "MNIST"),),
        ("contents",),
    ),
    Listed(
        "carvana_unet",
        "milesial/Pytorch-UNet",
        ".",
        "python train.py --epochs 5 --batch-size 2 --scale 0.5 --amp",
        (("data/imgs", "carvana/imgs"), ("data/masks", "carvana/masks")),
    ),
    Listed(
        "flows_moons",
        "ikostrikov/pytorch-flows",
        ".",
        "python main.py --dataset MOONS --flow maf",
    ),
    Listed(
        "ffjord_toy",
        "rtqichen/ffjord",
        ".",
        "python train_toy.py --data pinwheel --save DATA/out/ffjord",
    ),
    Listed("grokking", "teddykoker/grokking", ".", "python train.py"),
    Listed(
        "pyro_svi",
        "pyro-ppl/pyro",
        "examples",
        "python svi_torch.py --cuda",
        beside=("pyro",),
    ),
    Listed(
        "variational_recurrent",
        "emited/VariationalRecurrentNeuralNetwork",
        ".",
        "python train.py",
        (("data/MNIST", "MNIST"),),
    ),
    Listed(
        "ddp_series_single_gpu",
        EXAMPLES,
        "distributed/ddp-tutorial-series",
        "python single_gpu.py 50 10",
    ),
    # trains in a child of multiprocessing
    Listed(
        "mnist_hogwild",
        EXAMPLES,
        "mnist_hogwild",
        "python main.py --cuda --num-processes 1",
        DIGITS_OF_EXAMPLES,
    ),
]
