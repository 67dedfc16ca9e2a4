"""Programs that make pictures."""

from __future__ import annotations

from lists.listed import DIGITS_OF_EXAMPLES, EXAMPLES, Listed

GAN = "eriklindernoren/PyTorch-GAN"
DIGITS_OF_GAN = (("data/mnist/MNIST", "MNIST"),)

PROGRAMS = [
    Listed("vae", EXAMPLES, "vae", "python main.py --epochs 1", DIGITS_OF_EXAMPLES),
    Listed("dcgan", EXAMPLES, "dcgan", "python main.py --dataset fake --niter 1 --accel"),
    Listed(
        "diffusers_unconditional",
        "huggingface/diffusers",
        "examples/unconditional_image_generation",
        "accelerate launch train_unconditional.py --train_data_dir DATA/pictures/train "
        "--resolution 32 --train_batch_size 8 --num_epochs 1 --ddpm_num_inference_steps 3 "
        "--use_ema --mixed_precision bf16 --output_dir DATA/out",
    ),
    *(
        Listed(f"gan_{name}", GAN, f"implementations/{name}", f"python {name}.py", DIGITS_OF_GAN)
        for name in (
            *("gan", "dcgan", "wgan_gp", "acgan", "infogan", "aae", "ebgan", "sgan"),
            *("relativistic_gan", "wgan_div"),
        )
    ),
    Listed(
        "gan_pix2pix",
        GAN,
        "implementations/pix2pix",
        "python pix2pix.py --batch_size 4",
        (("data/facades", "pairs"),),
    ),
    Listed(
        "gan_cyclegan",
        GAN,
        "implementations/cyclegan",
        "python cyclegan.py",
        tuple(
            (f"data/monet2photo/{part}/{side}", f"pictures/train/class{index}")
            for index, (part, side) in enumerate(
                (part, side) for part in ("train", "test") for side in "AB"
            )
        ),
    ),
    Listed(
        "super_resolution",
        EXAMPLES,
        "super_resolution",
        "python main.py --upscale_factor 3 --batchSize 4 --nEpochs 30 --accel",
        (
            ("super_resolution/dataset/BSDS300/images/train", "pictures/train/class0"),
            ("super_resolution/dataset/BSDS300/images/test", "pictures/val/class0"),
        ),
    ),
    Listed(
        "vector_quantize_autoencoder",
        "lucidrains/vector-quantize-pytorch",
        ".",
        "env HOME=. python examples/autoencoder.py",
        (("data/fashion_mnist/FashionMNIST", "clothes/FashionMNIST"),),
    ),
    Listed(
        "stargan",
        "yunjey/stargan",
        ".",
        "python main.py --mode train --dataset RaFD --rafd_image_dir DATA/pictures/train "
        "--c_dim 8 --image_size 128 --use_tensorboard false",
    ),
    Listed(
        "conditional_diffusion",
        "TeaPearce/Conditional_Diffusion_MNIST",
        ".",
        "python script.py",
        (("data/MNIST", "MNIST"), ("data/diffusion_outputs10", "out")),
    ),
    Listed(
        "srcnn",
        "yjn870/SRCNN-pytorch",
        ".",
        "python train.py --train-file DATA/patches/train.h5 --eval-file DATA/patches/eval.h5 "
        "--outputs-dir DATA/out/srcnn --num-workers 2",
    ),
    Listed(
        "nerf",
        "yenchenlin/nerf-pytorch",
        ".",
        "python run_nerf.py --config configs/lego.txt --datadir DATA/scene --basedir DATA/out/nerf "
        "--testskip 1",
    ),
    Listed(
        "minimal_diffusion",
        "cloneofsimo/minDiffusion",
        ".",
        "python superminddpm.py",
        DIGITS_OF_EXAMPLES,
    ),
    Listed(
        "mnist_diffusion",
        "bot66/MNISTDiffusion",
        ".",
        "python train_mnist.py",
        (("mnist_data/MNIST", "MNIST"),),
    ),
    *(
        Listed(name, "timbmg/VAE-CVAE-MNIST", ".", f"python train.py{more}", DIGITS_OF_EXAMPLES)
        for name, more in (("vae_mnist", ""), ("conditional_vae_mnist", " --conditional"))
    ),
    Listed(
        "wgan_gp_collection",
        "aladdinpersson/Machine-Learning-Collection",
        "ML/Pytorch/GANs/4. WGAN-GP",
        "python train.py",
        (("ML/Pytorch/GANs/4. WGAN-GP/dataset/MNIST", "MNIST"),),
    ),
    Listed("glow", "rosinality/glow-pytorch", ".", "python train.py DATA/pictures/train --batch 8"),
    Listed(
        "srresnet",
        "sgrvinod/a-PyTorch-Tutorial-to-Super-Resolution",
        ".",
        "python train_srresnet.py",
        (("train_images.json", "lists/train_images.json"),),
    ),
    Listed(
        "ignite_dcgan",
        "pytorch/ignite",
        "examples/gan",
        "python dcgan.py --dataset fake --dataroot DATA --epochs 2 "
        "--output-dir DATA/out/ignite_dcgan",
    ),
]
