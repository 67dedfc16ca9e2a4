"""A LoRA adapter of PEFT trained by hand, saved and merged."""

import torch
from peft import LoraConfig, get_peft_model
from tiny_language import llama

model = get_peft_model(llama(), LoraConfig(r=16, target_modules="all-linear")).cuda()
model.print_trainable_parameters()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
model.train()
for step in range(100):
    tokens = torch.randint(0, 8000, (8, 256), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
model.save_pretrained("adapter")
model.merge_and_unload().save_pretrained("merged")
