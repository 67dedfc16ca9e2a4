"""LoRA with unsloth's kernels and TRL's SFTTrainer: the argument is the folder of the model."""

import sys

# it patches what is imported after it
from unsloth import FastLanguageModel  # isort: skip
from tiny_language import rows, text
from trl import SFTConfig, SFTTrainer

model, words = FastLanguageModel.from_pretrained(
    sys.argv[1], max_seq_length=256, load_in_4bit=False
)
projections = ("q", "k", "v", "o", "gate", "up", "down")
model = FastLanguageModel.get_peft_model(
    model,
    r=8,
    lora_alpha=16,
    target_modules=[f"{name}_proj" for name in projections],
    use_gradient_checkpointing="unsloth",
)
arguments = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=4,
    max_steps=20,
    dataset_text_field="text",
    max_length=256,
    bf16=True,
    report_to="none",
)
SFTTrainer(
    model=model,
    processing_class=words,
    train_dataset=rows({"text": text(200, seed)} for seed in range(200)),
    args=arguments,
).train()
