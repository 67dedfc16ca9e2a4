"""The training programs of other people that are predicted, by name, commit and line."""

from __future__ import annotations

from dataclasses import dataclass

# commits of the repositories
COMMITS = {
    "pytorch/examples": "77f55b912142e11fcfdf5b530231fb9c52f181e8",
    "karpathy/minGPT": "37baab71b9abea1b76ab957409a1cc2fbfba8a26",
    "huggingface/pytorch-image-models": "aa4b5850c1543fa488abf260f18390eda46cf85d",
    "huggingface/diffusers": "58eb52c0803ea9af3abec60841c2a093bdf1f951",
    "huggingface/transformers": "d56c55bf564ddb176759eb6ec199442682564916",
    "huggingface/trl": "f2cd57710ae345ea6428ae95363267fcf38a3dc8",
    "pytorch/vision": "e6f04004f0e0f759b44329d9ee6751a55abf0f83",
    "pytorch/ignite": "de08e799cfb55a6cf4aa778575d6bad725385453",
    "karpathy/makemore": "988aa59e4d8fefa526d06f3b453ad116258398d4",
    "karpathy/ng-video-lecture": "52201428ed7b46804849dea0b3ccf0de9df1a5c3",
    "karpathy/nanoGPT": "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    "eriklindernoren/PyTorch-GAN": "36d3c77e5ff20ebe0aeefd322326a134a279b93e",
    "yunjey/pytorch-tutorial": "0500d3df5a2a8080ccfccbc00aca0eacc21818db",
    "lucidrains/x-transformers": "9252ed7838021ee61e6c5be0930b3a9a88efdf06",
    "tkipf/pygcn": "1600b5b748b3976413d1e307540ccc62605b4d6d",
    "Lightning-AI/pytorch-lightning": "7f0c3436cd3f6ad3753125672024fc415cbcb414",
    "vwxyzjn/cleanrl": "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb",
    "karpathy/llama2.c": "350e04fe35433e6d2941dce5a1f53308f87058eb",
    "facebookresearch/dlrm": "090956ee2319ddd349a42232958aefccfe3f7b0a",
    "lucidrains/PaLM-rlhf-pytorch": "bd0d0f3893ec62f827fa35e759cb38d748829d51",
    "state-spaces/s4": "e757cef57d89e448c413de7325ed5601aceaac13",
    "Diego999/pyGAT": "3664f2dc90cbf971564c0bf186dc794f12446d0c",
    "pyg-team/pytorch_geometric": "5c6461b2305ad068a6d61165b3c55852a11aaa41",
    "ashleve/lightning-hydra-template": "bddbc24b82ab6ccfa6243e815a49dc5bfe8d4144",
    "lucidrains/vector-quantize-pytorch": "0d7d1aa83334b6f2f8a40306bece75cdaa13d065",
    "lucidrains/MEGABYTE-pytorch": "21eec73ae6e9268ad5b77be3c5dd5cbd7daeaa4d",
    "lucidrains/recurrent-memory-transformer-pytorch": "520a3574c5a00e452d2af3fb1c26f15a3779c8bb",
    "yunjey/stargan": "94dd002e93a2863d9b987a937b85925b80f7a19f",
    "jingyaogong/minimind": "d65ef2c00ebc6082f9df11541e1b191655eddb00",
    "rasbt/LLMs-from-scratch": "28c65cdfbc3338e2e040016eea4b7fdf556e4d57",
    "facebookresearch/schedule_free": "70785b53e778d0e872c0bbb75ff4ee54ee10c291",
    "facebookresearch/barlowtwins": "8e8d284ca0bc02f88b92328e53f9b901e86b4a3c",
    "fxia22/pointnet.pytorch": "bafbf401e0af19be3262e448c59313fd2be0e421",
    "mlfoundations/open_clip": "89fb801f1e6087880e951fc8354b8a2077b79c6d",
    "keras-team/keras-io": "983729da0fa9d656e955148b0ea17867e71ecffd",
    "salesforce/awd-lstm-lm": "1d466ec5875675ca6b6f0caacbb741240a29da9e",
    "TeaPearce/Conditional_Diffusion_MNIST": "657b49854bbf844caa5580177243ae607c79339f",
    "pmixer/SASRec.pytorch": "fde8a9c08febc2c898dc269b1d98ab762c50d2be",
    "locuslab/TCN": "2f8c2b817050206397458dfd1f5a25ce8a32fe65",
    "yanx27/Pointnet_Pointnet2_pytorch": "eb64fe0b4c24055559cea26299cb485dcb43d8dd",
    "juho-lee/set_transformer": "73432c640ac78140496d6738416c54d32c686d65",
    "rtqichen/torchdiffeq": "657943acefa826ef04c025ebeb1ff5e9d60dc268",
    "microsoft/LoRA": "c4593f060e6a368d7bb5af5273b8e42810cdef90",
    "yjn870/SRCNN-pytorch": "064dbaac09859f5fa1b35608ab90145e2d60828b",
    "rwightman/efficientdet-pytorch": "c6dff775a36cea0bf9b76c58e59f936411c5ce01",
    "yenchenlin/nerf-pytorch": "63a5a630c9abd62b0f21c08703d0ac2ea7d4b9dd",
}
# Written for this list, in frameworks/: each uses one library as people do.
OWN = "frameworks"
EXAMPLES, TIMM, MINGPT = "pytorch/examples", "huggingface/pytorch-image-models", "karpathy/minGPT"
HUGGING_FACE, TRL = "huggingface/transformers", "huggingface/trl"
LANGUAGE = "examples/pytorch/language-modeling"
GAN, TUTORIAL = "eriklindernoren/PyTorch-GAN", "yunjey/pytorch-tutorial"
LIGHTNING = "Lightning-AI/pytorch-lightning"
# Where programs look for their data, from the top of the repository, and what of DATA that is.
DIGITS_OF_EXAMPLES = (("data/MNIST", "MNIST"),)
DIGITS_OF_GAN = (("data/mnist/MNIST", "MNIST"),)
DIGITS_OF_TUTORIAL = (("tutorials/data/MNIST", "MNIST"),)
CITATIONS = "citations"


@dataclass(frozen=True)
class Listed:
    name: str
    repository: str
    folder: str  # in the repository, where the line is started
    line: str  # DATA is the folder that data.py has filled
    places: tuple[tuple[str, str], ...] = ()
    beside: tuple[str, ...] = ()  # other folders of the repository that it needs

    @property
    def commit(self) -> str:
        return COMMITS.get(self.repository, "")


PROGRAMS = [
    Listed("vae", EXAMPLES, "vae", "python main.py --epochs 1", DIGITS_OF_EXAMPLES),
    Listed("dcgan", EXAMPLES, "dcgan", "python main.py --dataset fake --niter 1 --accel"),
    Listed(
        "word_language_model",
        EXAMPLES,
        "word_language_model",
        "python main.py --data DATA/words --accel --epochs 1",
    ),
    Listed(
        "word_language_model_optimizer",
        EXAMPLES,
        "word_language_model",
        "python main.py --data DATA/words --accel --epochs 1 --model Transformer --use-optimizer",
    ),
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
    Listed("adder", MINGPT, ".", "python projects/adder/adder.py"),
    Listed(
        "chargpt",
        MINGPT,
        ".",
        "python projects/chargpt/chargpt.py",
        (("input.txt", "words/train.txt"),),
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
        "diffusers_unconditional",
        "huggingface/diffusers",
        "examples/unconditional_image_generation",
        "accelerate launch train_unconditional.py --train_data_dir DATA/pictures/train "
        "--resolution 32 --train_batch_size 8 --num_epochs 1 --ddpm_num_inference_steps 3 "
        "--use_ema --mixed_precision bf16 --output_dir DATA/out",
    ),
    Listed(
        "vision_mobilenet",
        "pytorch/vision",
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
    Listed(
        "run_mlm",
        "huggingface/transformers",
        LANGUAGE,
        "python run_mlm.py --model_type bert --tokenizer_name DATA/tokenizer "
        "--train_file DATA/words/train.txt --do_train --max_seq_length 256 "
        "--gradient_accumulation_steps 2 --output_dir DATA/out --report_to none",
    ),
    Listed(
        "makemore",
        "karpathy/makemore",
        ".",
        "python makemore.py -i names.txt --device cuda -o DATA/out/makemore",
    ),
    Listed("video_lecture_gpt", "karpathy/ng-video-lecture", ".", "python gpt.py"),
    Listed(
        "nanogpt_characters",
        "karpathy/nanoGPT",
        ".",
        "python train.py config/train_shakespeare_char.py --compile=False",
        tuple(
            (f"data/shakespeare_char/{name}", f"characters/{name}")
            for name in ("train.bin", "val.bin", "meta.pkl")
        ),
    ),
    *(
        Listed(f"gan_{name}", GAN, f"implementations/{name}", f"python {name}.py", DIGITS_OF_GAN)
        for name in ("gan", "dcgan", "wgan_gp", "acgan", "infogan", "aae")
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
        "tutorial_language_model",
        TUTORIAL,
        "tutorials/02-intermediate/language_model",
        "python main.py",
        (("tutorials/02-intermediate/language_model/data/train.txt", "words/train.txt"),),
    ),
    Listed("x_transformers_copy", "lucidrains/x-transformers", ".", "python train_copy.py"),
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
    Listed("gat", EXAMPLES, "gat", "python main.py", (("gat/cora", CITATIONS),)),
    Listed(
        "pygcn",
        "tkipf/pygcn",
        "pygcn",
        "python train.py",
        (
            ("data/cora/cora.content", f"{CITATIONS}/cora.content"),
            ("data/cora/cora.cites", f"{CITATIONS}/cora.cites"),
        ),
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
        "pytorch/vision",
        "references/similarity",
        "python train.py --dataset-dir DATA/clothes --epochs 1 --workers 2 --save-dir DATA/out",
    ),
    Listed(
        "lightning_bug_report",
        LIGHTNING,
        "examples/pytorch/bug_report",
        "python bug_report_model.py",
    ),
    Listed(
        "fabric_classifier",
        LIGHTNING,
        "examples/fabric/image_classifier",
        "python train_fabric.py --epochs 2",
        (("Datasets/MNIST", "MNIST"),),
    ),
    Listed("cleanrl_ppo", "vwxyzjn/cleanrl", ".", "python cleanrl/ppo.py"),
    Listed(
        "run_clm",
        HUGGING_FACE,
        LANGUAGE,
        "python run_clm.py --model_type gpt2 --tokenizer_name DATA/tokenizer "
        "--train_file DATA/words/train.txt --validation_file DATA/words/valid.txt "
        "--block_size 256 --do_train --bf16 --output_dir DATA/out/run_clm --report_to none",
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
        "run_swag",
        HUGGING_FACE,
        "examples/pytorch/multiple-choice",
        "python run_swag.py --model_name_or_path DATA/bert --train_file DATA/choices/train.json "
        "--validation_file DATA/choices/val.json --do_train --do_eval "
        "--output_dir DATA/out/run_swag --report_to none",
    ),
    *(
        Listed(
            f"trl_{name}_script",
            TRL,
            ".",
            f"python trl/scripts/{name}.py --model_name_or_path DATA/llama "
            f"--dataset_name DATA/{rows} --per_device_train_batch_size 4 {more}"
            f"--output_dir DATA/out/trl_{name} --report_to none",
        )
        for name, rows, more in (
            ("sft", "texts", "--eval_strategy steps --eval_steps 10 "),
            ("dpo", "preferences", "--use_peft "),
            ("reward", "preferences", "--eval_strategy epoch "),
            ("kto", "judged", ""),
        )
    ),
    Listed(
        "llama2c_stories",
        "karpathy/llama2.c",
        ".",
        "python train.py --compile=False --eval_iters=10 --batch_size=32",
        (("data/TinyStories_all_data", "stories"),),
    ),
    Listed(
        "dlrm_random",
        "facebookresearch/dlrm",
        ".",
        "python dlrm_s_pytorch.py --use-gpu --mini-batch-size=2048 --num-batches=20 "
        "--arch-sparse-feature-size=64 --arch-embedding-size=100000-200000-50000-400000 "
        "--arch-mlp-bot=13-512-256-64 --arch-mlp-top=512-256-1 "
        "--num-indices-per-lookup=10 --num-indices-per-lookup-fixed=True",
    ),
    Listed(
        "palm_rlhf_enwik8",
        "lucidrains/PaLM-rlhf-pytorch",
        ".",
        "python train.py",
        (("data/enwik8.gz", "enwik8.gz"),),
    ),
    *(
        Listed(
            f"x_transformers_{name}",
            "lucidrains/x-transformers",
            ".",
            f"python train_{name}.py",
            (("data/enwik8.gz", "enwik8.gz"),),
        )
        for name in ("length_extrapolate", "belief_state")
    ),
    Listed(
        "s4_mnist",
        "state-spaces/s4",
        ".",
        "python -m example --dataset mnist --d_model 256 --weight_decay 0.0",
        (("data/MNIST", "MNIST"),),
    ),
    Listed("x_transformers_parity", "lucidrains/x-transformers", ".", "python train_parity.py"),
    *(
        Listed(f"cleanrl_{name}", "vwxyzjn/cleanrl", ".", f"python cleanrl/{name}.py")
        for name in ("dqn", "c51", "pqn")
    ),
    *(
        Listed(name, LIGHTNING, folder, f"python {file}", ((f"{folder}/data", "wikitext"),))
        for name, folder, file in (
            ("lightning_transformer", "examples/pytorch/basics", "transformer.py"),
            ("fabric_language_model", "examples/fabric/language_model", "train.py"),
        )
    ),
    *(
        Listed(
            f"trl_{name}_example",
            TRL,
            ".",
            f"python examples/scripts/{name}.py --model_name_or_path DATA/llama "
            f"--dataset_name DATA/preferences --per_device_train_batch_size 4 {more}"
            f"--output_dir DATA/out/trl_{name} --report_to none",
        )
        for name, more in (("orpo", "--eval_strategy epoch "), ("cpo", "--use_peft "))
    ),
    Listed(
        "pygat",
        "Diego999/pyGAT",
        ".",
        "python train.py",
        (
            ("data/cora/cora.content", f"{CITATIONS}/cora.content"),
            ("data/cora/cora.cites", f"{CITATIONS}/cora.cites"),
        ),
    ),
    *(
        Listed(
            f"geometric_{name}",
            "pyg-team/pytorch_geometric",
            "examples",
            f"python {name}.py",
            (("data/Planetoid/Cora/raw", "planetoid"),),
        )
        for name in ("gcn", "gat", "link_pred")
    ),
    Listed(
        "hydra_template",
        "ashleve/lightning-hydra-template",
        ".",
        "python src/train.py trainer=gpu data.train_val_test_split=[6000,1000,1000]",
        (("data/MNIST", "MNIST"),),
    ),
    Listed(
        "vector_quantize_autoencoder",
        "lucidrains/vector-quantize-pytorch",
        ".",
        "env HOME=. python examples/autoencoder.py",
        (("data/fashion_mnist/FashionMNIST", "clothes/FashionMNIST"),),
    ),
    *(
        Listed(
            name, f"lucidrains/{name}", ".", "python train.py", (("data/enwik8.gz", "enwik8.gz"),)
        )
        for name in ("MEGABYTE-pytorch", "recurrent-memory-transformer-pytorch")
    ),
    Listed(
        "stargan",
        "yunjey/stargan",
        ".",
        "python main.py --mode train --dataset RaFD --rafd_image_dir DATA/pictures/train "
        "--c_dim 8 --image_size 128 --use_tensorboard false",
    ),
    *(
        Listed(
            f"minimind_{name}",
            "jingyaogong/minimind",
            "trainer",
            f"python train_{name}.py --data_path DATA/{data} --from_weight none --num_workers 2 "
            "--save_dir DATA/out/minimind",
            beside=("model", "dataset"),
        )
        for name, data in (
            ("pretrain", "texts/train.jsonl"),
            ("full_sft", "chats/chats.jsonl"),
            ("dpo", "chats/judged.jsonl"),
        )
    ),
    Listed(
        "from_scratch_torchrun",
        "rasbt/LLMs-from-scratch",
        "appendix-A/01_main-chapter-code",
        "torchrun --nproc_per_node=1 DDP-script-torchrun.py",
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
            f"pointnet_{name}",
            "fxia22/pointnet.pytorch",
            "utils",
            f"python train_{name}.py --dataset DATA/shapes --nepoch 2 --workers 2{more}",
            beside=("pointnet", "misc"),
        )
        for name, more in (("classification", ""), ("segmentation", " --class_choice Chair"))
    ),
    *(
        Listed(
            f"vision_{name}",
            "pytorch/vision",
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
        "awd_lstm",
        "salesforce/awd-lstm-lm",
        ".",
        "python main.py --data DATA/words --epochs 1 --batch_size 20",
    ),
    Listed(
        "conditional_diffusion",
        "TeaPearce/Conditional_Diffusion_MNIST",
        ".",
        "python script.py",
        (("data/MNIST", "MNIST"), ("data/diffusion_outputs10", "out")),
    ),
    Listed(
        "sasrec",
        "pmixer/SASRec.pytorch",
        "python",
        "python main.py --dataset=wikipedia --train_dir=default --maxlen=200 --device=cuda",
    ),
    *(
        Listed(f"tcn_{name}", "locuslab/TCN", f"TCN/{name}", f"python {script}.py", (), ("TCN",))
        for name, script in (("adding_problem", "add_test"), ("copy_memory", "copymem_test"))
    ),
    Listed(
        "pointnet2_classification",
        "yanx27/Pointnet_Pointnet2_pytorch",
        ".",
        "python train_classification.py --model pointnet2_cls_ssg --num_category 10 --use_normals "
        "--log_dir pointnet2_cls_ssg",
        (("data/modelnet40_normal_resampled", "clouds"),),
    ),
    # the first has sets of random sizes, of which no two runs have the same
    Listed("set_transformer", "juho-lee/set_transformer", ".", "python run.py"),
    Listed(
        "set_transformer_512",
        "juho-lee/set_transformer",
        ".",
        "python run.py --N_min 512 --N_max 513",
    ),
    *(
        Listed(
            f"pointnet2_{name}",
            "yanx27/Pointnet_Pointnet2_pytorch",
            ".",
            f"python train_classification.py --model {model} --num_category 10 --use_normals "
            f"--log_dir {model}",
            (("data/modelnet40_normal_resampled", "clouds"),),
        )
        for name, model in (("multi_scale", "pointnet2_cls_msg"), ("without_sets", "pointnet_cls"))
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
        "lora_gpt2",
        "microsoft/LoRA",
        "examples/NLG",
        "torchrun --nproc_per_node=1 src/gpt2_ft.py --train_data DATA/completions/train.jsonl "
        "--valid_data DATA/completions/valid.jsonl --train_batch_size 8 --grad_acc 1 "
        "--valid_batch_size 4 --seq_len 512 --model_card gpt2.md --platform local --clip 0.0 "
        "--lr 0.0002 --weight_decay 0.01 --correct_bias --adam_beta2 0.999 --scheduler linear "
        "--warmup_step 500 --max_epoch 5 --save_interval 1000 --lora_dim 4 --lora_alpha 32 "
        "--lora_dropout 0.1 --label_smooth 0.1 --work_dir DATA/out/lora --random_seed 110",
        (),
        ("loralib",),
    ),
    Listed(
        "srcnn",
        "yjn870/SRCNN-pytorch",
        ".",
        "python train.py --train-file DATA/patches/train.h5 --eval-file DATA/patches/eval.h5 "
        "--outputs-dir DATA/out/srcnn --num-workers 2",
    ),
    Listed(
        "efficientdet",
        "rwightman/efficientdet-pytorch",
        ".",
        "python train.py DATA/boxes --model tf_efficientdet_d0 -b 4 --amp --lr .09 -j 2 --epochs 1 "
        "--no-pretrained-backbone --output DATA/out/efficientdet",
    ),
    Listed(
        "nerf",
        "yenchenlin/nerf-pytorch",
        ".",
        "python run_nerf.py --config configs/lego.txt --datadir DATA/scene --basedir DATA/out/nerf "
        "--testskip 1",
    ),
    Listed("hugging_face_trainer_steps", OWN, ".", "python hugging_face_trainer.py steps"),
    Listed("hugging_face_trainer_epochs", OWN, ".", "python hugging_face_trainer.py epoch"),
    Listed("accelerate_loop", OWN, ".", "accelerate launch accelerate_loop.py"),
    Listed("lightning_callbacks", OWN, ".", "python lightning_callbacks.py"),
    Listed("trl_dpo", OWN, ".", "python trl_dpo.py"),
    Listed("peft_lora", OWN, ".", "python peft_lora.py"),
    Listed("sentence_embeddings", OWN, ".", "python sentence_embeddings.py"),
    Listed("ignite_engine", OWN, ".", "python ignite_engine.py"),
    Listed("fastai_learner", OWN, ".", "python fastai_learner.py"),
    Listed("reinforcement_ppo", OWN, ".", "python reinforcement_ppo.py"),
    Listed("ultralytics_yolo", OWN, ".", "python ultralytics_yolo.py"),
    Listed("deepspeed_zero1", OWN, ".", "deepspeed deepspeed_trainer.py 1"),
    Listed("deepspeed_zero2", OWN, ".", "deepspeed deepspeed_trainer.py 2"),
    Listed("deepspeed_zero3", OWN, ".", "torchrun --nproc-per-node 2 deepspeed_trainer.py 3"),
    Listed("deepspeed_zero3_alone", OWN, ".", "deepspeed deepspeed_trainer.py 3"),
    Listed("unsloth_lora", OWN, ".", "python unsloth_lora.py DATA/llama"),
    Listed(
        "litgpt_pretrain",
        OWN,
        ".",
        "litgpt pretrain pythia-14m --data TextFiles --data.train_data_path DATA/words "
        "--tokenizer_dir DATA/llama --train.micro_batch_size 4 --train.global_batch_size 8 "
        "--train.max_seq_length 256 --train.max_tokens 1000000 --precision bf16-true",
    ),
    Listed(
        "torchtune_full",
        OWN,
        ".",
        "tune run full_finetune_single_device --config torchtune.yaml",
    ),
    Listed(
        "torchtune_distributed",
        OWN,
        ".",
        "tune run --nproc_per_node 2 full_finetune_distributed --config torchtune.yaml",
    ),
    Listed(
        "torchtune_distributed_alone",
        OWN,
        ".",
        "tune run --nproc_per_node 1 full_finetune_distributed --config torchtune.yaml",
    ),
    Listed("llamafactory_lora", OWN, ".", "llamafactory-cli train llamafactory.yaml"),
    Listed("axolotl_lora", OWN, ".", "axolotl train axolotl.yaml"),
]
