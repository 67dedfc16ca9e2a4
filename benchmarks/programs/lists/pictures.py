"""Programs that sort pictures or find things in them."""

from __future__ import annotations

from lists.listed import DIGITS_OF_EXAMPLES, EXAMPLES, HUGGING_FACE, LIGHTNING, VISION, Listed

TIMM, TUTORIAL = "huggingface/pytorch-image-models", "yunjey/pytorch-tutorial"
DIGITS_OF_TUTORIAL = (("tutorials/data/MNIST", "MNIST"),)

PROGRAMS = [
    Listed(
        "siamese_network",
        EXAMPLES,
        "siamese_network",
        "python main.py --epochs 1",
        DIGITS_OF_EXAMPLES,
    ),
    Listed("mnist", EXAMPLES, "mnist", "python main.py --epochs 1", DIGITS_OF_EXAMPLES),
    Listed(
        "mnist_rnn",
        EXAMPLES,
        "mnist_rnn",
        "python main.py --epochs 1 --accel",
        DIGITS_OF_EXAMPLES,
    ),
    Listed(
        "timm_resnet18",
        TIMM,
        ".",
        "python train.py --data-dir DATA/pictures --model resnet18 -b 32 --epochs 1 "
        "--num-classes 8 -j 2 --amp --model-ema --output DATA/out",
    ),
    Listed(
        "timm_vit_tiny",
        TIMM,
        ".",
        "python train.py --data-dir DATA/pictures --model vit_tiny_patch16_224 -b 32 --epochs 1 "
        "--num-classes 8 -j 2 --opt adamw --grad-accum-steps 2 --output DATA/out",
    ),
    Listed(
        "vision_mobilenet",
        VISION,
        "references/classification",
        "python train.py --data-path DATA/pictures --model mobilenet_v3_small --epochs 1 -b 32 "
        "-j 2 --amp --model-ema --output-dir DATA/out",
    ),
    Listed(
        "ignite_mnist",
        "pytorch/ignite",
        "examples/mnist",
        "python mnist.py --epochs 1",
        (("examples/mnist/MNIST", "MNIST"),),
    ),
    *(
        Listed(
            f"tutorial_{name}",
            TUTORIAL,
            f"tutorials/{folder}",
            "python main.py",
            DIGITS_OF_TUTORIAL,
        )
        for name, folder in (
            ("cnn", "02-intermediate/convolutional_neural_network"),
            ("rnn", "02-intermediate/recurrent_neural_network"),
            ("two_way_rnn", "02-intermediate/bidirectional_recurrent_neural_network"),
            ("gan", "03-advanced/generative_adversarial_network"),
            ("vae", "03-advanced/variational_autoencoder"),
        )
    ),
    Listed(
        "forward_forward",
        EXAMPLES,
        "mnist_forward_forward",
        "python main.py --epochs 2",
        (("mnist_forward_forward/data/MNIST", "MNIST"),),
    ),
    Listed(
        "imagenet_dummy",
        EXAMPLES,
        "imagenet",
        "python main.py -a resnet50 -b 64 --dummy",
    ),
    Listed(
        "vision_similarity",
        VISION,
        "references/similarity",
        "python train.py --dataset-dir DATA/clothes --epochs 1 --workers 2 --save-dir DATA/out",
    ),
    Listed(
        "fabric_classifier",
        LIGHTNING,
        "examples/fabric/image_classifier",
        "python train_fabric.py --epochs 2",
        (("Datasets/MNIST", "MNIST"),),
    ),
    Listed(
        "run_mae",
        HUGGING_FACE,
        "examples/pytorch/image-pretraining",
        "python run_mae.py --dataset_name DATA/pictures --remove_unused_columns False "
        "--label_names pixel_values --do_train --do_eval --output_dir DATA/out/run_mae "
        "--report_to none",
    ),
    Listed(
        "s4_mnist",
        "state-spaces/s4",
        ".",
        "python -m example --dataset mnist --d_model 256 --weight_decay 0.0",
        (("data/MNIST", "MNIST"),),
    ),
    Listed(
        "hydra_template",
        "ashleve/lightning-hydra-template",
        ".",
        "python src/train.py trainer=gpu data.train_val_test_split=[6000,1000,1000]",
        (("data/MNIST", "MNIST"),),
    ),
    Listed(
        "schedule_free_mnist",
        "facebookresearch/schedule_free",
        "examples/mnist",
        "python main.py",
        (("examples/data/MNIST", "MNIST"),),
        ("schedulefree",),
    ),
    Listed(
        "barlow_twins",
        "facebookresearch/barlowtwins",
        ".",
        "python main.py DATA/pictures --batch-size 64 --workers 2 --epochs 20 "
        "--projector 2048-2048-2048 --checkpoint-dir DATA/out/barlow_twins",
    ),
    *(
        Listed(
            f"vision_{name}",
            VISION,
            f"references/{name}",
            f"python train.py --data-path DATA/boxes --dataset coco --model {model} -j 2 "
            "--epochs 1 --output-dir DATA/out",
        )
        for name, model in (
            ("detection", "fasterrcnn_resnet50_fpn -b 2"),
            ("segmentation", "lraspp_mobilenet_v3_large -b 4"),
        )
    ),
    Listed(
        "open_clip",
        "mlfoundations/open_clip",
        "src",
        "python -m open_clip_train.main --dataset-type synthetic --train-num-samples 2048 "
        "--model RN50 --batch-size 64 --epochs 1 --workers 2 --precision amp --logs DATA/out/clip",
    ),
    Listed(
        "keras_custom_train_step",
        "keras-team/keras-io",
        "guides",
        "python custom_train_step_in_torch.py",
    ),
    Listed(
        "tcn_pixels",
        "locuslab/TCN",
        "TCN/mnist_pixel",
        "python pmnist_test.py",
        (("TCN/mnist_pixel/data/mnist/MNIST", "MNIST"),),
        ("TCN",),
    ),
    Listed(
        "resnet_of_odenet",
        "rtqichen/torchdiffeq",
        "examples",
        "python odenet_mnist.py --network resnet --nepochs 1 --save DATA/out/odenet",
        (("examples/.data/mnist/MNIST", "MNIST"),),
        (".",),
    ),
    Listed(
        "efficientdet",
        "rwightman/efficientdet-pytorch",
        ".",
        "python train.py DATA/boxes --model tf_efficientdet_d0 -b 4 --amp --lr .09 -j 2 --epochs 1 "
        "--no-pretrained-backbone --output DATA/out/efficientdet",
    ),
    Listed(
        "simsiam",
        "facebookresearch/simsiam",
        ".",
        "python main_simsiam.py -a resnet50 --dist-url tcp://localhost:10001 "
        "--multiprocessing-distributed --world-size 1 --rank 0 --fix-pred-lr -b 64 -j 2 "
        "--epochs 2 DATA/pictures",
    ),
    Listed(
        "spiking_mnist",
        "fangwei123456/spikingjelly",
        ".",
        "python -m spikingjelly.activation_based.examples.lif_fc_mnist -T 20 -epochs 2 -j 2 "
        "-data-dir DATA -out-dir DATA/out/spiking",
    ),
    Listed(
        "opacus_mnist",
        "pytorch/opacus",
        "examples",
        "python mnist.py --device=cuda -n=2 --lr=.25 --sigma=1.3 -c=1.5 -b=240 --data-root DATA",
        beside=("opacus",),
    ),
    Listed(
        "continual_mnist",
        "GMvandeVen/continual-learning",
        ".",
        "python main.py --experiment=splitMNIST --scenario=task --si",
        (("store/datasets/MNIST/MNIST", "MNIST"),),
    ),
    Listed(
        "federated_mnist",
        "shaoxiongji/federated-learning",
        ".",
        "python main_fed.py --dataset mnist --iid --num_channels 1 --model cnn --epochs 2 --gpu 0",
        (("../data/mnist/MNIST", "MNIST"), ("save", "out")),
    ),
    Listed(
        "trades_mnist",
        "yaodongyu/TRADES",
        ".",
        "python train_trades_mnist.py --epochs 5",
        (("../data/MNIST", "MNIST"),),
    ),
    Listed(
        "fast_adversarial_mnist",
        "locuslab/fast_adversarial",
        "MNIST",
        "python train_mnist.py --fname fgsm.pth",
        (("mnist-data/MNIST", "MNIST"),),
    ),
    Listed(
        "fabric_folds",
        LIGHTNING,
        "examples/fabric/kfold_cv",
        "python train_fabric.py --epochs 2",
        (("Datasets/MNIST", "MNIST"),),
    ),
    Listed(
        "spiking_clothes",
        "fangwei123456/spikingjelly",
        ".",
        "python -m spikingjelly.activation_based.examples.conv_fashion_mnist -T 4 -b 128 "
        "-epochs 2 -data-dir DATA/clothes -out-dir DATA/out/spiking -amp -opt sgd -j 2",
    ),
    Listed(
        "collection_two_way_lstm",
        "aladdinpersson/Machine-Learning-Collection",
        "ML/Pytorch/Basics",
        "python pytorch_bidirectional_lstm.py",
        (("ML/Pytorch/Basics/dataset/MNIST", "MNIST"),),
    ),
    Listed(
        "continual_replay",
        "GMvandeVen/continual-learning",
        ".",
        "python main.py --experiment=splitMNIST --scenario=class --replay=generative",
        (("store/datasets/MNIST/MNIST", "MNIST"),),
    ),
    Listed(
        "vicreg",
        "facebookresearch/vicreg",
        ".",
        "torchrun --nproc_per_node=1 main_vicreg.py --data-dir DATA/pictures "
        "--exp-dir DATA/out/vicreg --arch resnet50 --epochs 20 --batch-size 32 --base-lr 0.3 "
        "--mlp 2048-2048-2048 --num-workers 2",
    ),
]
