"""Hugging Face's Trainer: evaluation and saving by steps, the best model loaded at the end."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        tokens = torch.randint(0, 5000, (256,))
        return {"input_ids": tokens, "labels": tokens}


def accuracy(prediction):
    return {"accuracy": (prediction.predictions.argmax(-1) == prediction.label_ids).mean().item()}


strategy = sys.argv[1] if len(sys.argv) > 1 else "steps"
model = GPT2LMHeadModel(GPT2Config(vocab_size=5000, n_layer=4, n_head=8, n_embd=512))
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,
    per_device_eval_batch_size=16,
    gradient_accumulation_steps=2,
    num_train_epochs=3,
    eval_strategy=strategy,
    save_strategy=strategy,
    eval_steps=50,
    save_steps=50,
    save_total_limit=1,
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    bf16=True,
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=Texts(4000),
    eval_dataset=Texts(640),
    compute_metrics=accuracy,
)
trainer.train()
print(trainer.evaluate())
trainer.save_model("best")
