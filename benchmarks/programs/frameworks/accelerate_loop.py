"""A loop of accelerate with accumulation, clipping, gathered metrics and a saved state."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(20000, 512), torch.randint(0, 10, (20000,)))
train, test = DataLoader(data, 128, shuffle=True), DataLoader(data, 512)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
model, optimizer, train, test, schedule = accelerator.prepare(
    model, optimizer, train, test, schedule
)
for epoch in range(3):
    model.train()
    for inputs, labels in train:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    right = count = 0
    for inputs, labels in test:
        with torch.no_grad():
            guess = model(inputs).argmax(-1)
        guess, labels = accelerator.gather_for_metrics((guess, labels))
        right, count = right + (guess == labels).sum().item(), count + len(labels)
    accelerator.print(epoch, right / count)
    accelerator.save_state(f"state_{epoch}")
accelerator.save_model(model, "final")
