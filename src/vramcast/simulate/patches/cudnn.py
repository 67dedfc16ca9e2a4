"""torch.backends.cudnn says that cuDNN is there.

Why: these functions look at how torch was built and do not ask the device.
Versions: torch 2.10 to 2.15; cuDNN 9.19 is what 2.11 is built with for CUDA.
"""

import importlib

import torch
from torch.backends import cudnn

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
VERSION = 91900
RNN_MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}


def apply(patcher: Patcher) -> None:
    def is_acceptable(tensor: torch.Tensor) -> bool:
        return tensor.is_cuda and tensor.dtype in cudnn.CUDNN_TENSOR_DTYPES

    patcher.put(cudnn, "is_available", lambda: True)
    patcher.put(cudnn, "is_acceptable", is_acceptable)
    patcher.put(cudnn, "version", lambda: VERSION)
    # `cudnn.rnn` is not the module: torch.backends.cudnn replaces itself by an object
    rnn = importlib.import_module("torch.backends.cudnn.rnn")
    patcher.put(rnn, "get_cudnn_mode", RNN_MODES.__getitem__)
