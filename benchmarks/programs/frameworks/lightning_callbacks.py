"""Lightning with early stopping, checkpoints of the best model, and a test with it."""

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self, width=1024):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))

    def _loss(self, batch):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def training_step(self, batch, index):
        loss = self._loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self._loss(batch), prog_bar=True)

    def test_step(self, batch, index):
        self.log("test_loss", self._loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


data = TensorDataset(torch.randn(20000, 784), torch.randint(0, 10, (20000,)))
best = ModelCheckpoint(monitor="val_loss", save_last=True, dirpath="checkpoints")
trainer = L.Trainer(
    max_epochs=20,
    callbacks=[best, EarlyStopping("val_loss", patience=2), LearningRateMonitor()],
    gradient_clip_val=1.0,
    accumulate_grad_batches=2,
    precision="16-mixed",
)
model = Classifier()
trainer.fit(model, DataLoader(data, 256, shuffle=True), DataLoader(data, 2048))
trainer.test(model, DataLoader(data, 2048), ckpt_path="best")
