"""Hugging Face's Trainer with a forecast of its own run; run by callbacks.py."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from vramcast.integrations.hf import VramForecast

texts = [{"input_ids": row, "labels": row} for row in torch.randint(0, 5000, (64, 256))]
trainer = Trainer(
    model=GPT2LMHeadModel(GPT2Config(vocab_size=5000, n_layer=4, n_head=8, n_embd=512)),
    args=TrainingArguments("out", per_device_train_batch_size=8, max_steps=8, report_to="none"),
    train_dataset=texts,
    callbacks=[VramForecast(gpu=sys.argv[1] if len(sys.argv) > 1 else None)],
)
trainer.train()
