"""Workloads that misbehave towards the process they run in."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import torch


def good(*, batch_size: int = 2, width: int = 4):
    x = torch.ones(batch_size, width, device="cuda")
    return lambda: x.sum()


def leaves_children(*, begun: str = ""):
    """One in a session of its own, one forked twice; with `begun`, it makes that file and waits."""
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    if begun:
        open(begun, "w").close()
        time.sleep(600)
    return good()


def kills_its_watchers():
    """With a child in a session of its own; nobody is left who would tell of the end."""
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    ctypes.CDLL(None).prctl(1, 0)  # and does not end with its parent
    guard = os.getppid()
    with open(f"/proc/{guard}/stat") as file:
        server = int(file.read().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    time.sleep(600)


def forks():
    """The fork comes back into vramcast."""
    os.fork()
    return good()


def writes_everywhere():
    for name in os.listdir("/proc/self/fd"):
        for data in (
            b'{"answer": {}}\n{"progress": 1}\n',
            b"",
            b"\xff" * 1000,
            b'{"outcome": "ok"',
        ):
            try:
                os.write(int(name), data)
            except OSError:
                continue
    return good()


def killed():
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def parses_arguments():
    import argparse

    argparse.ArgumentParser().parse_args()
    return good()


def leaves():
    sys.exit(5)
