"""Programs written for this list, in frameworks/: each uses one library as people do."""

from __future__ import annotations

from lists.listed import OWN, Listed

PROGRAMS = [
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
    Listed("scripted_gates", OWN, ".", "python scripted.py gates"),
    Listed("scripted_chain", OWN, ".", "python scripted.py chain"),
    Listed("scripted_modules", OWN, ".", "python scripted.py modules"),
]
