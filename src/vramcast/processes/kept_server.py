"""The process of a kept fork server; see kept.py.

It ends after some time without a question, when it is told to, and as soon as a file that it has
loaded is another one: after an upgrade of torch or vramcast, nothing old is served.
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
from vramcast.processes.kept import STATUS, STOP, peer
from vramcast.processes.server import Server, import_all

Stamp = tuple[int, int, int] | None


def stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def loaded_files() -> dict[str, Stamp]:
    """Everything that was imported, and the shared libraries."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for line in Path("/proc/self/maps").read_text().splitlines():
        files.add(line[line.find("/") :] if "/" in line else None)
    return {file: stamp(file) for file in files if file and os.path.isabs(file)}


class KeptForkServer(Server):
    def __init__(self, listener: socket.socket, idle_seconds: float, modules: list[str]) -> None:
        super().__init__(import_all(modules))
        self._listener, self._idle_seconds = listener, idle_seconds
        self._files = loaded_files()
        self._started = time.time()
        self._is_ending = False

    def serve(self) -> None:
        listening = self._listener.fileno()
        while not self._is_ending:
            limit = self._idle_seconds if self.is_idle else None
            ready = self.wait(listening, timeout_seconds=limit)
            if not ready:
                return
            if listening in ready:
                self._accept()

    def close(self) -> None:
        super().close()
        self._listener.close()

    def _accept(self) -> None:
        link, _ = self._listener.accept()
        pid, uid = peer(link)
        if uid != os.getuid():
            link.close()
            return
        if any(stamp(file) != before for file, before in self._files.items()):
            # who asks takes a fresh process
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
        # before the connections end, which goes with the process
        with contextlib.suppress(OSError):
            os.unlink(path)
        lifetime.end_children()
        # nothing to clean up, and torch takes its time over it
        os._exit(0)


if __name__ == "__main__":
    main()
