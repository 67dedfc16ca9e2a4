"""fastai's Learner, whose optimizer is not torch's, with a saved best model."""

import torch
from fastai.basics import DataLoader, DataLoaders, Learner
from fastai.callback.schedule import *  # noqa: F403  adds Learner.fit_one_cycle
from fastai.callback.tracker import EarlyStoppingCallback, SaveModelCallback
from fastai.metrics import accuracy
from torch import nn

data = [(torch.randn(784), torch.tensor(i % 10)) for i in range(4000)]
loaders = DataLoaders(
    DataLoader(data, bs=64, shuffle=True), DataLoader(data[:1000], bs=256), device="cuda"
)
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
learner = Learner(
    loaders,
    model,
    loss_func=nn.CrossEntropyLoss(),
    metrics=accuracy,
    cbs=[SaveModelCallback(), EarlyStoppingCallback(patience=3)],
)
learner.fit_one_cycle(5, 1e-3)
learner.save("final")
