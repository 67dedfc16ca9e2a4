"""The models of the documents that vramcast started from, and well-known baselines, in plain torch.

    catalogue.py     every name, its sizes and its exact parameter count; needs no torch
    sizing.py        parameter counts as arithmetic, and the size for a budget; needs no torch
    names.py         name -> workload
    training.py      the training step that all of them share

One file a family holds its equations and its modules: e1, e5, e10, mamba2, yxanul, elleci, od1,
gpt2, llama. Importing this package imports no torch, and nothing here knows vramcast.
"""
