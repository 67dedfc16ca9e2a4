"""TRL's DPOTrainer with a LoRA adapter of PEFT and an evaluation."""

from peft import LoraConfig
from tiny_language import llama, rows, text, tokenizer
from trl import DPOConfig, DPOTrainer

pairs = rows(
    [
        {"prompt": text(40, i), "chosen": text(60, i + 1), "rejected": text(50, i + 2)}
        for i in range(400)
    ]
)
arguments = DPOConfig(
    output_dir="out",
    per_device_train_batch_size=4,
    max_length=128,
    num_train_epochs=1,
    eval_strategy="steps",
    eval_steps=20,
    bf16=True,
    report_to="none",
)
trainer = DPOTrainer(
    model=llama(),
    args=arguments,
    train_dataset=pairs,
    eval_dataset=pairs.select(range(40)),
    processing_class=tokenizer(),
    peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("adapter")
