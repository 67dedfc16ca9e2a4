"""torch.save leaves a hole in the file for values that the simulated GPU has not computed.

Why: a checkpoint would fill the disk with zeros. Files with holes have the size of the real ones
and can be loaded.
"""

from typing import Any

import torch

from vramcast.simulate.patches.cuda_storages import LARGE_BYTES
from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
MARK = "vramcast_has_no_values"


def apply(patcher: Patcher) -> None:
    to_host, write = torch.UntypedStorage.cpu, torch._C.PyTorchFileWriter.write_record

    def cpu(self: torch.UntypedStorage) -> torch.UntypedStorage:
        storage = to_host(self)
        if self.device.type == "cuda" and self.nbytes() >= LARGE_BYTES:
            setattr(storage, MARK, True)
        return storage

    def write_record(file: Any, name: str, data: Any, num_bytes: int, *rest: Any) -> None:
        if getattr(data, MARK, False):
            file.write_record_metadata(name, num_bytes)
        else:
            write(file, name, data, num_bytes, *rest)

    patcher.put(torch.UntypedStorage, "cpu", cpu)
    patcher.put(torch._C.PyTorchFileWriter, "write_record", write_record)
