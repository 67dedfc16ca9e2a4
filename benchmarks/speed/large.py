"""Workloads of many tensors, of many kernels, and with tensors of many elements."""

import torch
from torch import nn


def tensors(num_tensors=4_000):
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(num_tensors // 2)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 16, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def launches(num_launches=200_000):
    x = torch.randn(4, 16, device="cuda")

    def step():
        y = x
        for _ in range(num_launches):
            y = y * 1.5

    return step


def rows(num_rows=18_000_000):
    x = torch.randn(num_rows, 1024, device="cuda")
    model = nn.Linear(1024, 1024).cuda()

    def step():
        model(x).sum().backward()

    return step
