"""Workloads for the sandbox: good ones, and some for everything that user code can do wrong."""

GOOD = """\
import torch

def good(*, batch_size: int = 4, scale: float = 1.0):
    torch.manual_seed(0)
    layer = torch.nn.Linear(16, 16).cuda()
    x = torch.randn(batch_size, 16, device="cuda")
    def step():
        loss = (layer(x) * scale).square().mean()
        loss.backward()
        return loss.detach()
    return step

def sequence(*, batch_size: int = 2, seq_len: int = 8):
    table = torch.nn.Embedding(32, 16).cuda()
    x = torch.zeros(batch_size, seq_len, dtype=torch.long, device="cuda")
    def step():
        loss = table(x).square().mean()
        loss.backward()
        return loss.detach()
    return step

def chunked(*, batch_size: int = 4, loss_chunks: int = 1):
    return good(batch_size=batch_size)
"""

SCRIPT = """\
import argparse, os, sys
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--leave", type=int)
parser.add_argument("--fail", action="store_true")
parser.add_argument("--kill", action="store_true")
parser.add_argument("--no-gpu", action="store_true")
asked = parser.parse_args()
device = "cpu" if asked.no_gpu else "cuda"
model = torch.nn.Linear(16, 16).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(asked.steps):
    loss = model(torch.randn(4, 16, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, loss.item())
    if asked.leave is not None:
        sys.exit(asked.leave)
    if asked.kill:
        os.kill(os.getpid(), 9)
    if asked.fail:
        raise RuntimeError("\\x1b[31mred")
"""

MODELS = """\
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.head = nn.Linear(width, 256)
    def forward(self, tokens):
        return self.head(self.embedding(tokens))

def tiny(*, width: int = 8):
    return Tiny(width)
"""

HOSTILE = r'''
import atexit, builtins, ctypes, json, os, signal, subprocess, sys, threading, time
import torch

def good(**_):
    x = torch.ones(4, 4, device="cuda", requires_grad=True)
    def step():
        loss = x.sum()
        loss.backward()
        return loss.detach()
    return step

def during(function):
    """A build that is fine, and a step that does it."""
    def build(*, batch_size: int = 2, seq_len: int = 8):
        inner = good()
        def step():
            function()
            return inner()
        return step
    return build

def at_once(function):
    def build(*, batch_size: int = 2, seq_len: int = 8):
        function()
        return good()
    return build

def leave(): sys.exit(5)
def leave_with_words(): sys.exit("\x1b[31mwords\x1b[0m\n" * 50)
def leave_well(): sys.exit(0)
def leave_quickly(): os._exit(7)
def be_killed(): os.kill(os.getpid(), signal.SIGKILL)
def be_terminated(): os.kill(os.getpid(), signal.SIGTERM)
def be_interrupted(): os.kill(os.getpid(), signal.SIGINT)
def abort(): os.abort()
def crash(): ctypes.string_at(0)
def fork(): os.fork()
def fork_and_leave():
    if os.fork() == 0:
        sys.exit(0)
def leave_a_daemon(): subprocess.Popen(["sleep", "600"], start_new_session=True)
def leave_a_twice_forked():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
def leave_a_thread():
    def print_for_ever():
        while True:
            print("still here", flush=True)
            time.sleep(0.001)
    threading.Thread(target=print_for_ever).start()
def ignore_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
def raise_long(): raise ValueError("long " * 1_000_000)
def raise_escapes(): raise ValueError("\x1b]0;title\x07\x1b[2J\r\x9b31m")
def raise_lines(): raise ValueError("\n" * 100_000)
def raise_surrogate(): raise ValueError("\udc80\ud800")
class Silent(Exception):
    def __str__(self): raise RuntimeError("no text")
    __repr__ = __str__
def raise_silent(): raise Silent()
class Base(BaseException): pass
def raise_base(): raise Base("base")
def raise_interrupt(): raise KeyboardInterrupt
def raise_generator_exit(): raise GeneratorExit
def raise_stop(): raise StopIteration
def raise_memory(): raise MemoryError
def raise_group(): raise ExceptionGroup("many", [ValueError(str(i)) for i in range(1000)])
def recurse(): recurse()
def raise_chain():
    try:
        raise_escapes()
    except ValueError as error:
        raise Silent() from error
def write_everywhere():
    for name in os.listdir("/proc/self/fd"):
        for data in (b'{"answer": {}}\n', b"", b"\xff" * 1000, b'{"outcome": "ok"'):
            try:
                os.write(int(name), data)
            except OSError:
                pass
def close_everything(): os.closerange(0, 200)
def close_output(): sys.stdout.close(); sys.stderr.close()
def print_much():
    for _ in range(200): print("much " * 20_000)
def print_binary(): os.write(1, bytes(range(256)) * 100)
def break_json():
    json.dumps = json.loads = lambda *a, **k: 1 / 0
def break_print(): builtins.print = builtins.open = lambda *a, **k: 1 / 0
def break_exit(): os._exit = lambda code: None
def exit_later(): atexit.register(lambda: os._exit(9))
def go_away(): os.chdir("/")
def change_umask(): os.umask(0o777)
def allocate_much(): torch.empty(1 << 55, device="cuda")
def allocate_negative(): torch.empty(-1, device="cuda")
def add_no_path(): sys.path.clear()
def unload(): sys.modules.clear()
def close_stdin(): sys.stdin = None
def change_arguments(): sys.argv = None
def environment_gone(): os.environ.clear()
def limit_files():
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))

ACTIONS = [value for value in list(globals().values())
           if callable(value) and getattr(value, "__module__", "") == __name__
           and value not in (good, during, at_once, Silent, Base)]
for action in ACTIONS:
    globals()["build_" + action.__name__] = at_once(action)
    globals()["step_" + action.__name__] = during(action)

def waits(*, batch_size: int = 2, seq_len: int = 8):
    return lambda: time.sleep(600)
def returns_a_class(): return Silent
def returns_number(): return 3
def generates(): yield good()
async def awaits(): return good()
def takes_anything(*names, **more): return good()
def needs_value(*, width): return good()
def odd_default(*, width=Silent()): return good()
def gives_odd_loss(): return lambda: Silent()
def gives_nan(): return lambda: torch.full((), float("nan"), device="cuda")
def takes_arguments(): return lambda batch: batch
def on_the_cpu(): return lambda: torch.ones(3).sum()
no_function = 3
class Loads:
    def __getattr__(self, name): raise RuntimeError("\x1b[31mno\x1b[0m")
loads = Loads()
'''

SYNTAX = "def good(:\n    pass\n"
AT_IMPORT = {
    "import_exit.py": "import sys\nsys.exit(4)\n",
    "import_raise.py": 'raise RuntimeError("\\x1b[31m" + "x" * 100000)\n',
    "import_loop.py": "import import_loop\nfrom import_loop import good\n",
    "import_missing.py": "import no_such_package_at_all\n",
    "import_bytes.py": b"\xff\xfe\x00def good(): pass",
    "import_empty.py": "",
    "import_kill.py": "import os\nos.kill(os.getpid(), 9)\n",
}
