"""Hugging Face's Trainer with DeepSpeed: the argument is the stage of ZeRO."""

import sys

from tiny_language import llama, rows, text, tokenizer
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

stage = next(int(word) for word in sys.argv[1:] if word.isdecimal())
words = tokenizer()
texts = rows({"text": text(200, seed)} for seed in range(200))
tokens = texts.map(lambda row: words(row["text"]), remove_columns=["text"])
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=4,
    num_train_epochs=1,
    bf16=True,
    deepspeed={
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
    },
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to="none",
)
Trainer(
    model=llama(),
    args=arguments,
    train_dataset=tokens,
    eval_dataset=tokens.select(range(40)),
    data_collator=DataCollatorForLanguageModeling(words, mlm=False),
).train()
