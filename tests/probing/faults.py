"""Workloads that misbehave. `phase` says where: build, warm-up, or a measured step."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import torch

WARM_UP = 2


def at(phase, misbehave):
    """A workload that is well until the phase; steps return 1.0."""
    if phase == "build":
        misbehave()
    done = 0

    def step():
        nonlocal done
        done += 1
        if (phase, done) in (("warm-up", 1), ("measure", WARM_UP + 2)):
            misbehave()
        return 1.0

    return step


def good(*, batch_size: int = 2):
    x = torch.ones(batch_size, 4, device="cuda")
    return lambda: x.sum()


def signalled(*, phase: str, number: int):
    return at(phase, lambda: os.kill(os.getpid(), number))


def segfault(*, phase: str):
    return at(phase, lambda: ctypes.string_at(0))


def hangs(*, phase: str):
    return at(phase, lambda: time.sleep(600))


def hangs_deaf(*, phase: str):
    """As code in C does that never lets Python look at its signals."""

    def deaf():
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        time.sleep(600)

    return at(phase, deaf)


def waits(*, phase: str, started: str):
    """With a child in a session of its own; the file `started` is made when it waits."""

    def wait():
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        open(started, "w").close()
        time.sleep(600)

    return at(phase, wait)


def fills_the_disk(*, full: str):
    def step():
        open(full, "w").close()
        return 1.0

    return step


def exits(*, phase: str, how: str):
    def leave():
        print("on my way out")
        {"os": os._exit, "sys": sys.exit}[how](0)

    return at(phase, leave)


def rubbish(*, megabytes: int = 4):
    """Into every descriptor: bytes that are no text, then lines that look like messages."""
    junk = bytes(range(256)).replace(b"\n", b"\0") * (megabytes << 12)
    lines = b'{"step": 3}\n{"facts": [1]}\n{"outcome": "ok"}\nnull\n[[[\n{"phase": {"a": 1}}\n'

    def spew():
        for name in os.listdir("/proc/self/fd"):
            try:
                for data in (junk, b"\n" + lines, b"no newline at the end"):
                    os.write(int(name), data)
            except OSError:
                continue
        return 1.0

    return spew


def raises(*, what: str):
    class Mute(Exception):
        def __str__(self):
            raise KeyboardInterrupt

    errors = {
        "mute": Mute(),
        "not unicode": RuntimeError("a\udcffb\x1b[31m"),
        "long": RuntimeError("x" * 10_000_000),
        "plain": KeyError("k"),
        "interrupt": KeyboardInterrupt(),
        "missing": NotImplementedError("no such kernel"),
    }

    def step():
        raise errors[what]

    return step


def out_of_memory(*, how: str):
    def step():
        space = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), space[1]))
        return {
            "python": lambda: len(bytearray(1 << 30)),
            "torch": lambda: torch.empty(1 << 30, device="cuda").numel(),
        }[how]()

    return step


def closes_descriptors(*, first: int, reopen: str):
    def close():
        os.closerange(first, 256)
        if reopen:  # whoever writes to an old number now writes here
            for _ in range(30):
                os.open(reopen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    return at("measure", close)


def closes_output():
    sys.stdout.close()
    sys.stderr.close()
    return lambda: 1.0


def leaves_children(*, ends: bool = True):
    """In a session of its own, forked twice, and as a thread."""
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    threading.Thread(target=time.sleep, args=(600,)).start()
    return (lambda: 1.0) if ends else (lambda: time.sleep(600))


def ends_its_guard(*, number: int):
    def step():
        os.kill(os.getppid(), number)
        time.sleep(600)

    return step


def loses(*, losses: list[str]):
    """Returns these one after another."""
    values = iter(losses)
    return lambda: float(next(values))
