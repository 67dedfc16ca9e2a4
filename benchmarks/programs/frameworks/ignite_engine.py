"""ignite's engines with metrics, a checkpoint handler and early stopping."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import EarlyStopping, ModelCheckpoint
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(20000, 784), torch.randint(0, 10, (20000,)))
train, test = DataLoader(data, 128, shuffle=True), DataLoader(data, 1024)
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
loss = nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, loss, "cuda")
metrics = {"accuracy": Accuracy(), "loss": Loss(loss)}
evaluator = create_supervised_evaluator(model, metrics, "cuda")


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    evaluator.run(test)
    print(engine.state.epoch, evaluator.state.metrics)


def score(engine):
    return engine.state.metrics["accuracy"]


best = ModelCheckpoint("checkpoints", n_saved=2, score_function=score, require_empty=False)
evaluator.add_event_handler(Events.COMPLETED, best, {"model": model})
evaluator.add_event_handler(Events.COMPLETED, EarlyStopping(3, score, trainer))
trainer.run(train, max_epochs=20)
