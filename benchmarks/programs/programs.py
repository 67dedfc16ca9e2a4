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
}
# Written for this list, in frameworks/: each uses one library as people do.
OWN = "frameworks"
EXAMPLES, TIMM, MINGPT = "pytorch/examples", "huggingface/pytorch-image-models", "karpathy/minGPT"
LANGUAGE = "examples/pytorch/language-modeling"


@dataclass(frozen=True)
class Listed:
    name: str
    repository: str
    folder: str  # in the repository, where the line is started
    line: str  # DATA is the folder that data.py has filled

    @property
    def commit(self) -> str:
        return COMMITS.get(self.repository, "")


PROGRAMS = [
    Listed("vae", EXAMPLES, "vae", "python main.py --epochs 1"),
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
    Listed("siamese_network", EXAMPLES, "siamese_network", "python main.py --epochs 1"),
    Listed("mnist", EXAMPLES, "mnist", "python main.py --epochs 1"),
    Listed("mnist_rnn", EXAMPLES, "mnist_rnn", "python main.py --epochs 1 --accel"),
    Listed("adder", MINGPT, ".", "python projects/adder/adder.py"),
    Listed("chargpt", MINGPT, ".", "python projects/chargpt/chargpt.py"),
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
    Listed("ignite_mnist", "pytorch/ignite", "examples/mnist", "python mnist.py --epochs 1"),
    Listed(
        "run_mlm",
        "huggingface/transformers",
        LANGUAGE,
        "python run_mlm.py --model_type bert --tokenizer_name DATA/tokenizer "
        "--train_file DATA/words/train.txt --do_train --max_seq_length 256 "
        "--gradient_accumulation_steps 2 --output_dir DATA/out --report_to none",
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
    Listed("llamafactory_lora", OWN, ".", "llamafactory-cli train llamafactory.yaml"),
    Listed("axolotl_lora", OWN, ".", "axolotl train axolotl.yaml"),
]
