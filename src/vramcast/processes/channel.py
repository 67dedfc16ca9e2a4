"""The connection to a process that runs user code: JSON messages in packets with a secret.

User code may write into every descriptor it finds. Packets without the secret are dropped.
"""

import contextlib
import json
import os
import socket
import struct
import sys
import threading
from typing import Any

from vramcast import errors

POLL_SECONDS = 0.25
SECRET_BYTES = 16
PART_BYTES = 1 << 16
# flags of a message's parts; a message that a dead process has left unfinished is dropped
FIRST, LAST = 1, 2
SENDER = struct.Struct("iii")  # process, user and group, as reported by the kernel


class Channel:
    def __init__(self, connection: socket.socket, secret: bytes) -> None:
        self._connection, self._secret = connection, secret
        self._pid = os.getpid()
        self._received = bytearray()
        self._sending = threading.Lock()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def send(self, **message: Any) -> None:
        if os.getpid() != self._pid:
            # this is a fork made by user code, and only the original process may answer
            os._exit(1)
        data = json.dumps(message).encode()
        with self._sending:
            for start in range(0, len(data), PART_BYTES):
                end = start + PART_BYTES
                flags = FIRST * (start == 0) | LAST * (end >= len(data))
                try:
                    self._connection.send(self._secret + bytes([flags]) + data[start:end])
                except OSError as problem:
                    with contextlib.suppress(Exception):
                        print(f"The connection to vramcast was closed: {problem}.", file=sys.stderr)
                    os._exit(1)

    def receive(self) -> dict[str, Any] | None:
        """The next message; {} when none came in time, None when the other side is gone."""
        self._connection.settimeout(POLL_SECONDS)
        try:
            packet, told, _, _ = self._connection.recvmsg(
                SECRET_BYTES + 1 + PART_BYTES, socket.CMSG_SPACE(SENDER.size)
            )
        except TimeoutError:
            return {}
        except ConnectionResetError:
            return None
        # user code can write an empty packet; only the end of the connection has no sender
        if not packet and not any(SENDER.unpack(data)[0] for _, _, data in told):
            return None
        if not packet.startswith(self._secret) or len(packet) == SECRET_BYTES:
            return {}
        flags = packet[SECRET_BYTES]
        if flags & FIRST:
            self._received.clear()
        self._received += packet[SECRET_BYTES + 1 :]
        if not flags & LAST:
            return {}
        try:
            return dict(json.loads(self._received))
        except (ValueError, TypeError, RecursionError):
            return {}  # user code has found the secret and has written something else

    def hang_up(self) -> None:
        """Tells the other side to end. What it still sends can be received."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._connection.close()


def error_to_dict(error: errors.VramcastError) -> dict[str, str]:
    known = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    return {"class": known.__name__, "message": error.message, "advice": error.advice}


def error_from_dict(data: dict[str, str]) -> errors.VramcastError:
    kind: type[errors.VramcastError] = getattr(errors, data["class"])
    return kind(data["message"], data["advice"])
