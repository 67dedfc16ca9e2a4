"""Programs that read their data, evaluate and save in other ways, by name."""

import atexit
import multiprocessing
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, dataloader

kind = sys.argv[1]
model, other = torch.nn.Linear(64, 64).cuda(), torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = TensorDataset(torch.randn(320, 64))
loader = DataLoader(data, 8)


def step(x, of=model, by=optimizer):
    of(x.cuda()).square().mean().backward()
    by.step()
    by.zero_grad()


def nothing():
    pass


def evaluate_and_save():
    model.eval()
    with torch.no_grad():
        model(torch.randn(8, 64, device="cuda"))
    torch.save(model.state_dict(), "model.pt.new")
    os.replace("model.pt.new", "model.pt")
    model.train()


def train(epoch):
    for _ in range(1000):
        epoch()
        evaluate_and_save()


match kind:
    case "gan":  # the first optimizer has seen enough before the second steps
        second = torch.optim.Adam(other.parameters())

        def epoch():
            for (x,) in loader:
                step(x)
                step(x, other, second)

        train(epoch)
    case "read-ahead":

        def epoch():
            batches = iter(loader)
            ahead = [next(batches)[0].cuda() for _ in range(2)]
            while ahead:
                step(ahead.pop(0))
                ahead += [x.cuda() for (x,) in [next(batches, (None,))] if x is not None]

        train(epoch)
    case "kept-iterator":  # loaders as those of YOLO: one iterator without end for all epochs

        class Forever:
            def __iter__(self):
                while True:
                    yield range(8)

        class Kept(DataLoader):
            def __init__(self, length):
                super().__init__(data, batch_sampler=Forever())
                self.length, self.iterator = length, super().__iter__()

            def __iter__(self):
                for _ in range(self.length):
                    yield next(self.iterator)

        kept, kept_to_evaluate = Kept(40), Kept(10)

        def epoch():
            for (x,) in kept:
                step(x)
            model.eval()
            with torch.no_grad():
                print("evaluated", sum(len(model(x.cuda())) for (x,) in kept_to_evaluate))

        train(epoch)
    case "own-iterator":

        def epoch():
            for (x,) in dataloader._SingleProcessDataLoaderIter(loader):
                step(x)

        train(epoch)
    case "keeps-outputs":

        def epoch():
            for (x,) in loader:
                step(x)
            model.eval()
            kept = []
            with torch.no_grad():
                for (x,) in loader:
                    kept.append(model(x.cuda()).repeat(1, 4096))
            print("kept", len(kept))
            model.train()

        train(epoch)
    case "stream":  # evaluates before it trains, with as many batches as it says

        class Stream(IterableDataset):
            def __iter__(self):
                while True:
                    yield torch.randn(64)

        batches = iter(DataLoader(Stream(), 8))
        model.eval()
        with torch.no_grad():
            print("evaluated", sum(len(model(next(batches).cuda())) for _ in range(10)))
        model.train()
        while True:
            step(next(batches))
    case "workers":  # that stay for the next epoch

        def with_worker():
            return DataLoader(data, 8, num_workers=1, persistent_workers=True, pin_memory=True)

        def epoch():
            for (x,) in with_worker():
                step(x)

        epoch()
        print("workers after the epoch", len(multiprocessing.active_children()))
        kept = with_worker()
        iter(kept)
        atexit.register(lambda: print("workers", len(multiprocessing.active_children())))
    case "counts":  # the batches that its workers make
        made = multiprocessing.Value("i", 0)

        def count(samples):
            made.value += 1
            return torch.stack([x for (x,) in samples])

        def read(do):
            num, before = 0, made.value
            for x in DataLoader(data, 8, num_workers=1, collate_fn=count):
                do(x)
                num += 1
                time.sleep(0.2)
            print("read", num, "made", made.value - before)

        def epoch():
            read(step)
            model.eval()
            with torch.no_grad():
                read(lambda x: model(x.cuda()))
            model.train()

        train(epoch)
    case "tidies-up":  # much Python after the last step, before it evaluates

        def epoch():
            for (x,) in loader:
                step(x)
            for _ in range(100_000):
                nothing()

        train(epoch)
    case "bytes":  # a storage of negative numbers

        def epoch():
            for (x,) in loader:
                step(x)
            with torch.no_grad():
                shifted = torch.zeros(8, device="cuda") - 3.0
            print("bytes", len(shifted.untyped_storage().cpu()))

        train(epoch)
    case "samples":  # with a model that stays in training mode

        def epoch():
            for (x,) in loader:
                step(x)
            with torch.no_grad():
                model(torch.randn(4096, 64, device="cuda"))

        for _ in range(1000):
            epoch()
    case "long-sample":  # many passes after the epoch, with a larger one among the first

        def epoch():
            for (x,) in loader:
                step(x)
            model.eval()
            with torch.no_grad():
                for index in range(100_000):
                    model(torch.randn(8 if index % 200 else 4096, 64, device="cuda"))
            print("sampled")

        train(epoch)
    case "direct-sample":  # its passes are no calls of the module

        class Sampler(torch.nn.Sequential):
            num_run = 0

            def forward(self, x):
                Sampler.num_run += 1
                return super().forward(x)

            @torch.no_grad()
            def sample(self):
                x = torch.zeros(1, 64, device="cuda")
                for _ in range(200):
                    x = torch.cat([x, self.forward(x)[-1:]])
                print(f"sampled {len(x)}, ran {self.num_run}")

        own = Sampler.forward
        # small weights would be known, and so what is made of them
        wide = torch.nn.Linear(64, 1024).cuda(), torch.nn.ReLU(), torch.nn.Linear(1024, 64).cuda()
        sampler = Sampler(*wide)
        optimizer = torch.optim.SGD(sampler.parameters(), 0.1)
        for _, (x,) in zip(range(4), loader):
            step(x, sampler, optimizer)
            sampler.eval().sample()
            sampler.train()
            step(x, sampler, optimizer)
            assert Sampler.forward is own
    case "benchmark":  # cuDNN tries kernels
        torch.backends.cudnn.benchmark = True
        print("began")
        convolution = torch.nn.Conv2d(8, 8, 3).cuda()
        optimizer = torch.optim.SGD(convolution.parameters(), 0.1)
        while True:
            convolution(torch.randn(4, 8, 32, 32, device="cuda")).sum().backward()
            optimizer.step()
    case "layouts":  # of what torch.where gives, which softmax copies or not
        rows, columns = torch.randn(4, 8), torch.randn(8, 4).t()
        for condition in (rows > 0, columns > 0, rows[:1] > 0):
            for one, two in ((rows, rows), (columns, rows), (rows, columns)):
                on_gpu = torch.where(condition.cuda(), one.cuda(), two.cuda())
                print("alike", on_gpu.stride() == torch.where(condition, one, two).stride())
        while True:
            step(torch.randn(8, 64))
    case "at-the-end":  # evaluates, also with what it trained with, and saves after its last epoch
        for _ in range(1000):
            for (x,) in loader:
                step(x)
        model.eval()
        with torch.no_grad():
            print("evaluated", sum(len(model(x.cuda())) for (x,) in loader))
        evaluate_and_save()
        print("ended")
    case "new-loaders":  # as those that DeepSpeed makes, one for each epoch
        for _ in range(1000):
            for (x,) in DataLoader(data, 8):
                step(x)
        evaluate_and_save()
    case "averaged":  # evaluates the model and its average after every epoch, and saves at the end
        for number in range(3):
            model.train()
            for (x,) in loader:
                step(x)
            for name, of in (("model", model), ("average", other)):
                of.eval()
                with torch.no_grad():
                    evaluated = sum(len(of(x.cuda())) for (x,) in loader)
                print("epoch", number, name, evaluated)
        torch.save(model.state_dict(), "model.pt")
    case "until-enough":  # would read for ever what has ended
        num_batches = 0
        while num_batches < 1000:
            for (x,) in loader:
                step(x)
                num_batches += 1
    case "mean-of-batches":  # cannot do without batches
        for _ in range(1000):
            losses = [step(x) for (x,) in loader]
            print("mean", len(losses) / len(losses))
    case "safetensors":
        from accelerate.utils.other import save

        def epoch():
            for (x,) in loader:
                step(x)
            save(model.state_dict(), "model.safetensors", safe_serialization=True)

        train(epoch)
    case "safetensors-of-steps":  # small contents are there when they are loaded again
        from safetensors.torch import load_file, save_file

        def epoch():
            for (x,) in loader:
                step(x)
            steps = torch.tensor([7, 300], device="cuda")
            save_file({"steps": steps, "rate": torch.tensor(0.5), **model.state_dict()}, "all.st")
            found = load_file("all.st", device="cuda")
            print("loaded", found["steps"].tolist(), found["rate"].item())

        train(epoch)
    case "traced":  # a trace has only what the program itself computes

        def epoch():
            for (x,) in loader:
                step(x)
            traced = torch.jit.trace(torch.nn.Sequential(model, other), x.cuda())
            print("traced", [node.kind() for node in traced.inlined_graph.nodes()][-2:])

        train(epoch)
    case "saves-first":
        torch.save(model.state_dict(), "first.pt")
        for _ in range(1000):
            step(torch.randn(8, 64))
    case "ignite":
        from ignite.engine.engine import Engine, Events

        def forward(engine, batch):
            model.eval()
            with torch.no_grad():
                print("evaluated", len(model(batch[0].cuda())))

        def evaluate(engine):
            model.train()
            Engine(forward).run(loader, max_epochs=1)  # with what it trains with
            evaluate_and_save()

        trainer = Engine(lambda engine, batch: step(batch[0]))
        trainer.add_event_handler(Events.EPOCH_COMPLETED, evaluate)
        trainer.run(loader, max_epochs=1000)
        print("the engine ended in epoch", trainer.epoch)
    case "counted":  # whoever has evaluated fewer than there are has lost some
        validation = DataLoader(data, 8)
        for _ in range(2):
            for (x,) in loader:
                step(x)
            model.eval()
            with torch.no_grad():
                evaluated = sum(len(model(x.cuda())) for (x,) in validation)
            model.train()
            assert evaluated == len(validation.dataset), "lost samples"
            assert isinstance(validation.dataset, TensorDataset) and validation.dataset[0]
            print("evaluated", evaluated, "of", len(validation.dataset))
            torch.save(model.state_dict(), "model.pt")
    case "random-sizes":
        for size in (65536, 8192, 32768, 16384) * 10:
            step(torch.randn(size, 64))
    case "many-workers":
        many = DataLoader(data, 8, num_workers=6)
        batches = iter(many)
        print(len(batches._workers), "workers of", many.num_workers)
        for (x,) in batches:
            step(x)
    case "chosen-rows":  # how many they are is known to whoever computes what the network does
        host = torch.nn.Linear(64, 64)
        other.load_state_dict(host.state_dict())
        for _ in range(1000):
            x = torch.randn(512, 64)
            rows = x.cuda()[other(x.cuda()).softmax(1)[:, 0] > 1 / 64]
            if len(rows) != (host(x).softmax(1)[:, 0] > 1 / 64).sum():
                raise ValueError("other rows than the network chooses")
            step(rows)
    case "never-right":
        if (other(torch.randn(8, 64).cuda()) < 1000).any():
            raise ValueError("the network has chosen nothing")
