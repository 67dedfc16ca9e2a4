"""A plain training program, as people write them: arguments, epochs, an evaluation, a checkpoint.

    python examples/train.py --batch_size=12                                       on your GPU
    vramcast predict --gpu rtx-4090 -- python examples/train.py --batch_size=12    no GPU needed

Nothing in it knows of vramcast.
"""

import argparse

import torch
from gpt import GPT
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--eval_batch_size", type=int, default=32)
parser.add_argument("--seq_len", type=int, default=1024)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--out", default="model.pt")
VOCABULARY = 50304


def main() -> None:
    given = parser.parse_args()
    device = torch.device("cuda")
    model = GPT(VOCABULARY, given.seq_len, width=768, depth=12, heads=12).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = TensorDataset(torch.randint(VOCABULARY, (4096, given.seq_len + 1)))
    training = DataLoader(data, given.batch_size, shuffle=True, pin_memory=True)
    validation = DataLoader(data, given.eval_batch_size)

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(tokens[:, :-1], tokens[:, 1:])

    for epoch in range(given.epochs):
        model.train()
        for (tokens,) in training:
            loss = loss_of(tokens)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            losses = [loss_of(tokens).item() for (tokens,) in validation]
        print(f"epoch {epoch}: validation loss {sum(losses) / len(losses):.3f}")
        torch.save(model.state_dict(), given.out)


if __name__ == "__main__":
    main()
