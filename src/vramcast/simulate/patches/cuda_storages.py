"""Storages of the simulated GPU can be made, resized and copied to the host.

Why: a build of torch without CUDA does not know their device. With this, copy.deepcopy, torch.load
and libraries that work on storages, such as FSDP, run torch's own code.
"""

from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
LARGE_BYTES = 64 << 10


def apply(patcher: Patcher) -> None:
    library = patcher.gpu.device.library
    make: Any = torch.UntypedStorage.__new__
    resize = torch.UntypedStorage.resize_

    def __new__(cls: Any, *arguments: Any, device: Any = None, **options: Any) -> Any:
        size = arguments[0] if arguments else 0
        if isinstance(size, int) and not options:
            device_type = torch.device(device).type if device is not None else "cpu"
            if device_type == "cuda":
                return make(cls, size, allocator=library.vramcast_device_allocator())
            if device_type == "cpu" and size >= LARGE_BYTES:
                return make(cls, size, allocator=library.vramcast_host_allocator())
        if device is not None:
            options["device"] = device
        return make(cls, *arguments, **options)

    def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type != "cuda":
            return resize(self, size)
        library.vramcast_resize_storage(self._cdata, int(size))
        return self

    patcher.put(torch.UntypedStorage, "__new__", __new__)
    patcher.put(torch.UntypedStorage, "resize_", resize_)
