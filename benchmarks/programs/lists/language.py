"""Programs that train models of language."""

from __future__ import annotations

from lists.listed import ENCYCLOPEDIA, EXAMPLES, HUGGING_FACE, LIGHTNING, Listed

TRL, MINGPT = "huggingface/trl", "karpathy/minGPT"
PARTS = ("train", "dev", "test")
LANGUAGE = "examples/pytorch/language-modeling"

PROGRAMS = [
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
    Listed("adder", MINGPT, ".", "python projects/adder/adder.py"),
    Listed(
        "chargpt",
        MINGPT,
        ".",
        "python projects/chargpt/chargpt.py",
        (("input.txt", "words/train.txt"),),
    ),
    Listed(
        "run_mlm",
        HUGGING_FACE,
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
    Listed(
        "tutorial_language_model",
        "yunjey/pytorch-tutorial",
        "tutorials/02-intermediate/language_model",
        "python main.py",
        (("tutorials/02-intermediate/language_model/data/train.txt", "words/train.txt"),),
    ),
    Listed("x_transformers_copy", "lucidrains/x-transformers", ".", "python train_copy.py"),
    Listed(
        "run_clm",
        HUGGING_FACE,
        LANGUAGE,
        "python run_clm.py --model_type gpt2 --tokenizer_name DATA/tokenizer "
        "--train_file DATA/words/train.txt --validation_file DATA/words/valid.txt "
        "--block_size 256 --do_train --bf16 --output_dir DATA/out/run_clm --report_to none",
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
        "palm_rlhf_enwik8",
        "lucidrains/PaLM-rlhf-pytorch",
        ".",
        "python train.py",
        ENCYCLOPEDIA,
    ),
    *(
        Listed(
            f"x_transformers_{name}",
            "lucidrains/x-transformers",
            ".",
            f"python train_{name}.py",
            ENCYCLOPEDIA,
        )
        for name in ("length_extrapolate", "belief_state")
    ),
    Listed("x_transformers_parity", "lucidrains/x-transformers", ".", "python train_parity.py"),
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
    *(
        Listed(name, f"lucidrains/{name}", ".", "python train.py", ENCYCLOPEDIA)
        for name in ("MEGABYTE-pytorch", "recurrent-memory-transformer-pytorch")
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
        "awd_lstm",
        "salesforce/awd-lstm-lm",
        ".",
        "python main.py --data DATA/words --epochs 1 --batch_size 20",
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
        "gpt2_corpus",
        "affjljoo3581/GPT2",
        "src",
        "python -m gpt2 train --train_corpus DATA/words/train.txt "
        "--eval_corpus DATA/words/test.txt --vocab_path DATA/lists/vocabulary.txt "
        "--save_checkpoint_path DATA/out/gpt2.pth --save_model_path DATA/out/gpt2-model.pth "
        "--batch_train 32 --batch_eval 32 --gpus 1",
    ),
    Listed(
        "word2vec",
        "Andras7/word2vec-pytorch",
        ".",
        "python -m word2vec.trainer",
        (("input.txt", "words/train.txt"),),
    ),
    Listed(
        "ncrf_tagger",
        "jiesutd/NCRFpp",
        ".",
        "python main.py --config demo.train.config",
        (("sample_data/sample.word.emb", "tagged/words.emb"),),
    ),
    *(
        Listed(
            f"titles_{name}",
            "649453932/Chinese-Text-Classification-Pytorch",
            ".",
            f"python run.py --model {model} --embedding random",
            (
                *((f"THUCNews/data/{part}.txt", f"titles/{part}.txt") for part in PARTS),
                ("THUCNews/saved_dict", "out"),
            ),
        )
        for name, model in (
            ("convolutions", "TextCNN"),
            ("recurrent", "TextRNN_Att"),
            ("attention", "Transformer"),
            ("deep_pyramid", "DPCNN"),
        )
    ),
    Listed("minGRU-pytorch", "lucidrains/minGRU-pytorch", ".", "python train.py", ENCYCLOPEDIA),
]
