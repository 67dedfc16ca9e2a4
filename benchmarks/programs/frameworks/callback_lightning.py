"""Lightning's Trainer with a forecast of its own run; run by callbacks.py."""

import sys

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from torch.utils.data import DataLoader

from vramcast.integrations.lightning import VramForecast

model = BoringModel()
model.layer = torch.nn.Sequential(torch.nn.Linear(32, 8192), torch.nn.Linear(8192, 2))
loader = DataLoader(torch.randn(4096, 32), batch_size=512)
trainer = Trainer(
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    callbacks=[VramForecast(gpu=sys.argv[1] if len(sys.argv) > 1 else None)],
)
trainer.fit(model, loader, loader)
