"""Programs of other shapes, by name."""

import os
import sys
import threading
import time

import torch

kind = sys.argv[1]
model = torch.nn.Linear(64, 64)
if kind not in ("cpu", "leaves-early"):
    model = model.cuda()
other = torch.nn.Linear(64, 64)
if kind in ("critic", "in-backward"):
    other = other.cuda()
optimizer = None
if kind not in ("by-hand", "in-backward"):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)


def loss(of=model):
    return of(torch.randn(4, 64, device=of.weight.device)).sum()


def step():
    loss().backward()
    optimizer.step()
    optimizer.zero_grad()


def forever(*calls):
    while True:
        for call in calls:
            call()


match kind:
    case "loop":
        forever(step)
    case "by-hand":

        def update():
            loss().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.1 * parameter.grad)
                    parameter.grad = None

        forever(update)
    case "critic":  # the second optimizer steps once in five
        second = torch.optim.Adam(other.parameters())

        def second_step():
            loss(other).backward()
            second.step()
            second.zero_grad()
            print("second step")

        forever(*[step] * 5, second_step)
    case "accumulation":
        forever(*[lambda: loss().backward()] * 4, step)
    case "in-backward":
        single = {p: torch.optim.SGD([p], 0.1) for p in other.parameters()}
        for parameter in other.parameters():
            parameter.register_post_accumulate_grad_hook(lambda p: single[p].step())
        forever(lambda: loss(other).backward())
    case "catches":

        def catching():
            try:
                step()
            except BaseException as error:
                print("caught", type(error).__name__)

        forever(catching)
    case "thread":
        threading.Thread(target=time.sleep, args=(1000,)).start()
        forever(step)
    case "leaves":
        for _ in range(2):
            step()
        os._exit(0)
    case "closes":
        os.closerange(3, 256)
        forever(step)
    case "whole":
        for _ in range(12):
            step()
        print("all steps done")
    # what is no training
    case "exit":
        print("I leave")
        sys.exit(3)
    case "message":
        sys.exit("no data here")
    case "raises":
        raise ValueError("wrong value 7")
    case "loads-wrong":

        class Wrong(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                raise ValueError("no picture 3")

        torch.ones(2).cuda()
        next(iter(torch.utils.data.DataLoader(Wrong(), num_workers=1)))
    case "no-file":
        torch.load("weights.pt")
    case "no-attribute":

        class Samples:
            pass

        torch.ones(2).cuda()
        print(len(Samples().pictures))
    case "no-name":
        import numpy

        print(numpy.linalg.boolean)
    case "wordless":

        class Wordless(Exception):
            def __str__(self):
                raise RuntimeError("no text")

            def __eq__(self, other):
                return self.value == other.value  # as in pynvml

        raise Wordless from OSError("no library")
    case "interrupts":
        raise KeyboardInterrupt
    case "input":
        input("name? ")
    case "killed":
        os.kill(os.getpid(), 9)
    case "forward":
        for _ in range(3):
            loss()
    case "leaves-early":
        torch.ones(1, device="cuda")
        os._exit(0)
    case "crashes":
        import ctypes

        ctypes.string_at(0)
    case "leaves-badly":
        os._exit(7)
    case "forks-away":
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(1000)
    case "talks":
        import multiprocessing

        forking = multiprocessing.get_context("fork")
        answers = forking.Queue()
        other = forking.Process(target=answers.put, args=(1,))
        other.start()
        answers.get()
        other.join()
    case "missing":
        import a_package_that_is_not_there  # noqa: F401
    case "downloads":
        try:
            raise ConnectionRefusedError("no route to http://data.example/words.zip")
        except ConnectionError:
            raise FileNotFoundError("words.zip is not here") from None
    case "fetches":
        import urllib.request

        urllib.request.urlopen("http://127.0.0.1:9/words.zip")
    case "cpu":
        for _ in range(3):
            step()
