"""Tasks for the tests of the process layer: `task(request, tell) -> answer`."""

import importlib
import os
import resource
import signal
import subprocess
import sys
import time

from vramcast.errors import EnvironmentProblem


def echo(request, tell):
    tell("begun")
    print("printed")
    return {"request": request}


def tells_thrice(request, tell):
    for number in (1, 2, 3):
        tell(number)
    open(request, "w").close()
    time.sleep(600)


def large(request, tell):
    return "x" * request


def most_faults_of_calls(request, tell):
    """Pages that Python takes anew in so many calls, at the depth at which it takes most."""

    def leaf(): ...

    def below(depth):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(request):
            leaf()
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        return max(taken, below(depth - 1)) if depth else taken

    return below(300)


def where(request, tell):
    return [os.getcwd(), os.environ.get("ASKED"), sys.argv]


def writes_everywhere(request, tell):
    """Lines that look like answers, then bytes, into every descriptor there is."""
    for name in os.listdir("/proc/self/fd"):
        for data in (b'{"answer": "forged"}\n', bytes(range(256)) * 16, b"", b"\xff", b"\0" * 4000):
            try:
                os.write(int(name), data)
            except OSError:
                continue
    return "real"


def forks_and_falls_through(request, tell):
    fork = os.fork()
    if fork == 0:
        return "forged"
    os.waitpid(fork, 0)
    return "real"


def refuses(request, tell):
    print("on the way")
    raise EnvironmentProblem("No abacus." if request is None else request * 5_000_000, "Buy one.")


def raises(request, tell):
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    what = {"long": "x" * 5_000_000, "not text": "a\udcffb\x1b[31m"}.get(request, "no such luck")
    raise Mute if request == "mute" else ValueError(what)


def ends(request, tell):
    print("last words", flush=True)
    {"exit": sys.exit, "_exit": os._exit, "signal": lambda n: os.kill(os.getpid(), n)}[request[0]](
        request[1]
    )
    time.sleep(60)


def waits(request, tell):
    tell("waiting")
    time.sleep(600)


def leaves_children(request, tell):
    """One in a session of its own, one forked twice; then it answers, or waits."""
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    tell("left")
    if request == "waits":
        time.sleep(600)
    if request == "kills its guard":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)


def stops_its_guard(request, tell):
    os.kill(os.getppid(), signal.SIGSTOP)
    open(request, "w").close()
    time.sleep(600)


def calibrates(request, tell):
    """As measuring kernels does, with libraries that print much."""
    for done in range(len(request)):
        os.write(2, b"a warning\n" * 20_000)
        tell(done)
    return {"convolutions": {key: [1, 2, 3] for key in request}}


def lists_descriptors(request, tell):
    """What a program that user code starts has open."""
    return subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True).stdout.split()


def remembers(request, tell):
    """What an earlier task left in this process's Python, its folder, umask and environment."""
    before = getattr(sys, "remembered", None)
    sys.remembered = request
    umask = os.umask(0)
    return [before, os.getcwd(), umask, os.environ.get("ASKED")]


def says_version(request, tell):
    import a_library

    return a_library.VERSION


def kills_its_server(request, tell):
    """Once: the server that is asked next answers."""
    if not os.path.exists(request):
        with open(request, "w"):
            guard = os.getppid()
        with open(f"/proc/{guard}/stat") as file:
            server = int(file.read().rpartition(")")[2].split()[1])
        os.kill(server, signal.SIGKILL)
        os.kill(guard, signal.SIGKILL)
        time.sleep(600)
    return "answered by a fresh process"


def tells_its_process(request, tell):
    tell(os.getpid())
    time.sleep(600)


def uses_a_library(request, tell):
    """Whether it was there before, and where it is from."""
    was_there = "yaml" in sys.modules
    if request.get("variable"):
        os.environ["SET_BY_THE_TASK"] = "1"
    if request.get("folder"):
        sys.path.insert(0, request["folder"])
    import yaml

    return [was_there, os.path.dirname(yaml.__file__)]


def import_libraries(request, names):
    for name in names:
        importlib.import_module(name)
