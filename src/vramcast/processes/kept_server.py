"""The process of a kept fork server; see kept.py.

It ends after some time without a question, when it is told to, and when a file that it has loaded
has changed.
"""

import contextlib
import json
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from vramcast import __version__
from vramcast.processes import lifetime
from vramcast.processes.branches import Branches, grow, order_in
from vramcast.processes.kept import STATUS, STOP, peer
from vramcast.processes.loaded_files import LoadedFiles
from vramcast.processes.server import Server, import_all


class KeptForkServer(Server):
    def __init__(self, listener: socket.socket, idle_seconds: float, modules: list[str]) -> None:
        super().__init__(import_all(modules))
        self._listener, self._idle_seconds = listener, idle_seconds
        self._files = LoadedFiles()
        self._branches = Branches()
        self._started = time.time()
        self._is_ending = False

    def serve(self) -> None:
        listening = self._listener.fileno()
        while not self._is_ending:
            limit = self._idle_seconds if self.is_idle else None
            ready = self.wait(listening, *self._branches.descriptors(), timeout_seconds=limit)
            if not ready:
                return
            self._branches.hear(ready)
            self._grow(ready)
            if listening in ready:
                self._accept()

    def close(self) -> None:
        super().close()
        self._branches.close()
        self._listener.close()

    def other_children(self) -> list[int]:
        return self._branches.pids()

    def begin(self, descriptors: list[int], parent: int, **more: Any) -> int:
        order = order_in(descriptors[0])
        family = order["family"]
        if family is None:
            return super().begin(descriptors, parent)
        if self._branches.hand_on(family["name"], descriptors, parent):
            return -1
        note = os.memfd_create("note")
        guard = super().begin(descriptors, parent, note=note)
        self._branches.expect(guard, family["name"], family, note)
        return guard

    def _grow(self, ready: list[int]) -> None:
        """Grows a branch with the libraries of each task that has just ended."""
        for handle in ready:
            if found := self._branches.ended(handle):
                name, request, note = found
                self._branches.add(name, grow(note, request, self.close, self.num_threads))

    def _accept(self) -> None:
        link, _ = self._listener.accept()
        pid, uid = peer(link)
        if uid != os.getuid():
            link.close()
            return
        if self._files.have_changed():
            # the asking side uses a fresh process
            self._is_ending = True
            link.close()
            return
        try:
            self.add(link, os.pidfd_open(pid))
        except OSError:  # it has just died
            link.close()

    def control(self, link: socket.socket, message: bytes) -> None:
        if message == STOP:
            self._is_ending = True
        if message == STATUS and select.select([], [link], [], 0)[1]:
            with contextlib.suppress(OSError):
                link.send(json.dumps(self._status()).encode())

    def _status(self) -> dict[str, Any]:
        memory = Path("/proc/self/statm").read_text().split()
        return {
            "pid": os.getpid(),
            "python": sys.executable,
            "vramcast_version": __version__,
            "torch_version": str(getattr(sys.modules.get("torch"), "__version__", "")) or None,
            "started": self._started,
            "num_questions": self.num_tasks,
            "idle_minutes": self._idle_seconds / 60,
            "resident_bytes": int(memory[1]) * os.sysconf("SC_PAGE_SIZE"),
        }


def main() -> NoReturn:
    listener, path, idle_seconds, modules = sys.argv[1:]
    lifetime.adopt_orphans()
    try:
        with socket.socket(fileno=int(listener)) as listening:
            server = KeptForkServer(listening, float(idle_seconds), json.loads(modules))
            server.serve()
    finally:
        # before the connections are closed, which happens when the process ends
        with contextlib.suppress(OSError):
            os.unlink(path)
        lifetime.end_children()
        # there is nothing to clean up, and torch's own clean-up takes long
        os._exit(0)


if __name__ == "__main__":
    main()
