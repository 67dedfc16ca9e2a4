"""What programs do with a GPU, done on the simulated one: run by test_device_programs.py.

    python tests/simulate/device_programs.py

Prints the name of every function below and, where it failed, why. Each is recorded on its own.
"""

from __future__ import annotations

import copy
import gc
import importlib.util
import io
import json
import os
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate import device
from vramcast.simulate.session import Session
from vramcast.simulate.workspaces import gemm_workspaces
from vramcast.tracing.trace import split_holds

SESSION = Session(device.Device(), find_gpu("h200"))
BEFORE = ThreadPoolExecutor(1)  # a thread from before any recording
BEFORE.submit(int).result()

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402

from vramcast.simulate.ownership import Ownership  # noqa: E402

KIB = 1 << 10


def _taken_by(run: Callable[[], object]) -> list[int]:
    """Bytes that it allocates and, negative, frees; what it returns is kept for the while."""
    before = len(SESSION.device.events())
    kept = run()
    events, allocations = SESSION.device.events()[before:], SESSION.device.allocations()
    del kept
    return [allocations[abs(e) - 1].num_bytes * (1 if e > 0 else -1) for e in events]


def _live_bytes() -> int:
    return SESSION.device.allocated_bytes()


# storages


def a_deep_copy_takes_the_whole_storage_and_views_stay_views() -> None:
    x = torch.zeros(KIB, device="cuda")
    scalar = [4, -4]  # torch makes a tensor of no dimensions, and gives it the copied storage
    assert _taken_by(lambda: copy.deepcopy(x)) == [4 * KIB, *scalar]
    whole, part = copy.deepcopy((x, x[8:16]))
    assert part.data_ptr() == whole.data_ptr() + 8 * 4


def tied_weights_stay_tied_in_a_deep_copy() -> None:
    embedding, head = nn.Embedding(64, 16), nn.Linear(16, 64, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleList([embedding, head, nn.BatchNorm1d(16)]).cuda()
    before = _live_bytes()
    copied = copy.deepcopy(model)
    assert copied[0].weight is copied[1].weight and copied[2].running_mean.is_cuda
    assert _live_bytes() == 2 * before


def a_checkpoint_can_be_loaded_where_its_reader_wants_it() -> None:
    model = nn.Linear(256, 256).cuda()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "step": torch.tensor(3, device="cuda")}, file)
    cuda = torch.device("cuda", 0)
    for where, expected in (
        ("cuda", cuda),
        (cuda, cuda),
        ("cpu", torch.device("cpu")),
        ({"cuda:0": "cpu"}, torch.device("cpu")),
        (lambda storage, _: storage.cuda(), cuda),
        (None, cuda),
    ):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded["model"]["weight"].device == expected
        assert loaded["step"].item() == 3
        model.load_state_dict(loaded["model"])


def a_checkpoint_takes_no_place_on_the_disk() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.pt"
        torch.save(nn.Linear(1 << 10, 1 << 10).cuda(), file)
        assert file.stat().st_size > 4 << 20 and file.stat().st_blocks * 512 < 1 << 20
        assert torch.load(file, weights_only=False).weight.is_cuda


def storages_can_be_made_filled_copied_and_resized() -> None:
    storage = torch.UntypedStorage(KIB, device="cuda")
    copied = storage.clone().fill_(3)
    assert copied.device == torch.device("cuda", 0) and copied.cpu()[5] == 3
    # the new memory is taken before the old is given back
    assert _taken_by(lambda: copied.resize_(2 * KIB)) == [2 * KIB, -KIB]
    assert copied.nbytes() == 2 * KIB and copied[5] == 3
    assert _taken_by(lambda: copied.resize_(0)) == [-2 * KIB]
    x = torch.empty(0, device="cuda").set_(storage, 4, (8, 2), (2, 1))
    assert x.data_ptr() == storage.data_ptr() + 4 * 4 and x.shape == (8, 2)


def safetensors_are_loaded_onto_the_gpu() -> None:
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.safetensors")
        save_file(nn.Linear(16, 16).cuda().state_dict(), file)
        assert _taken_by(lambda: load_file(file, device="cuda")) == [64, 4 * 256]


def tensor_types_of_the_gpu_make_tensors_there() -> None:
    x = torch.cuda.FloatTensor(2, 3)
    assert (
        x.is_cuda and isinstance(x, torch.cuda.FloatTensor) and x.type() == "torch.cuda.FloatTensor"
    )
    assert torch.ones(3).type(torch.cuda.HalfTensor).dtype == torch.float16
    assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]


def questions_that_programs_ask_in_passing_are_answered() -> None:
    free_bytes, total_bytes = torch.cuda.cudart().cudaMemGetInfo(0)
    assert 0 < free_bytes <= total_bytes
    with torch.cuda.nvtx.range("step"):
        assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
    assert not torch.cuda.can_device_access_peer(0, 0)
    torch.cuda.memory._record_memory_history()
    address = torch.cuda.caching_allocator_alloc(KIB)
    assert _taken_by(lambda: torch.cuda.caching_allocator_delete(address)) == [-KIB]


# inference mode


def inference_mode_makes_inference_tensors_and_ordinary_views_of_ordinary_tensors() -> None:
    model = nn.Linear(16, 16).cuda()
    with torch.inference_mode():
        y = model(torch.zeros(4, 16, device="cuda"))
        assert y.is_inference() and y.view(-1)[3:7].is_inference()
        view = model.weight.view(-1)
        assert not view.is_inference()
        view.add_(1)
        assert model.weight._version == view._version > 0
    assert not y.clone().is_inference()
    try:
        y.add_(1)
    except RuntimeError as error:
        assert "Inplace update to inference tensor" in str(error)
    else:
        raise AssertionError("an inference tensor was changed outside inference mode")


def evaluation_in_inference_mode_between_training_steps_leaves_nothing() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    after = []
    for _ in range(3):
        model(torch.zeros(4, 16, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.inference_mode(), torch.no_grad():
            model(torch.zeros(64, 16, device="cuda")).mean().item()
            with torch.inference_mode(False), torch.enable_grad():
                model(torch.zeros(4, 16, device="cuda")).sum().backward()
                optimizer.zero_grad()
        after.append(_live_bytes())
    assert after[1] == after[2]


# streams


def streams_are_entered_left_and_compared() -> None:
    side, urgent = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    assert isinstance(side, torch.Stream) and side != urgent and urgent.priority == -1
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream(device=0) == side
        assert torch.accelerator.current_stream().stream_id == side.stream_id
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == side
        with urgent:
            assert torch.cuda.current_stream() == urgent
    assert torch.cuda.current_stream() == torch.cuda.default_stream() != side
    assert torch.cuda.ExternalStream(4096).cuda_stream == 4096
    # torch has 32 streams, and hands them out in turn
    assert [torch.cuda.Stream() for _ in range(32)][-1] == side


def events_are_recorded_waited_for_and_timed() -> None:
    side = torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.ones(4, device="cuda").add_(1)
    end.record(side)
    side.wait_event(begin)
    side.wait_stream(torch.cuda.current_stream())
    end.synchronize()
    torch.cuda.synchronize()
    assert end.query() and side.query() and begin.elapsed_time(end) > 0


def allocations_have_the_stream_of_the_forward_pass_also_in_the_backward_pass() -> None:
    side = torch.cuda.Stream()
    weight = torch.ones(64, 64, device="cuda", requires_grad=True)
    with torch.cuda.stream(side):
        loss = (weight @ weight).sum()
    loss.backward()
    streams = [a.stream for a in SESSION.device.allocations()]
    # the weight and the gradient of the loss; both threads have a workspace for this stream
    assert streams.count(0) == 3 and set(streams) == {0, side.stream_id}


def memory_that_another_stream_uses_comes_back_when_the_host_knows_it_has_finished() -> None:
    side, other = torch.cuda.Stream(), torch.cuda.Stream()

    def held_after(wait: Callable[[], object]) -> bool:
        x = torch.empty(KIB, device="cuda")
        number = len(SESSION.device.allocations())
        x.record_stream(side)
        del x
        wait()
        torch.empty(1, device="cuda")
        events, held_until = split_holds(SESSION.device.events())
        return held_until[number] > len(events)

    recorded_before = side.record_event()
    assert held_after(lambda: None)
    assert held_after(recorded_before.synchronize)
    assert held_after(other.synchronize)
    assert held_after(torch.ones(1, device="cuda").item)
    assert not held_after(lambda: side.record_event().synchronize())
    assert not held_after(torch.cuda.synchronize)
    # the default stream waits for the other, and the host for the default stream
    torch.cuda.current_stream().wait_stream(side)
    assert not held_after(
        lambda: (torch.cuda.current_stream().wait_stream(side), torch.ones(1).cuda().item())
    )
    # a host is at most so many launches ahead of its GPU
    x = torch.ones(1, device="cuda")
    assert not held_after(lambda: [x.add_(1) for _ in range(1100)])


def pinned_memory_is_known_as_such() -> None:
    pinned = torch.ones(4).pin_memory()
    assert pinned.is_pinned() and pinned[2:].is_pinned() and not torch.ones(4).is_pinned()
    assert pinned.cuda(non_blocking=True).sum().item() == 4


# torch itself


def torch_describes_its_build_and_has_the_parts_that_no_one_imported() -> None:
    assert "CUDA" in torch.__config__.show()
    assert torch.broadcast_shapes((2, 1), (1, 3)) == (2, 3)


def integers_of_a_large_graph_are_computed() -> None:
    links = torch.arange(1 << 20, device="cuda").view(2, -1)
    loops = links.clone()
    loops[1, :5] = loops[0, :5]
    assert loops[:, loops[0] != loops[1]].shape == (2, (1 << 19) - 5)


# threads


def threads_from_before_and_after_the_recording_began_use_the_gpu() -> None:
    def step() -> str:
        layer = nn.Linear(16, 16).cuda()
        layer(torch.ones(4, 16, device="cuda")).topk(2)[0].sum().backward()
        return layer.weight.grad.device.type

    with ThreadPoolExecutor(1) as after:
        assert [pool.submit(step).result() for pool in (BEFORE, after)] == ["cuda"] * 2
    assert nn.DataParallel(nn.Linear(4, 4).cuda())(torch.ones(2, 4)).is_cuda


def a_new_thread_begins_on_the_default_stream_and_has_the_workspace_of_one_that_ended() -> None:
    def multiply() -> None:
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
        torch.ones(16, 16, device="cuda") @ torch.ones(16, 16, device="cuda")

    with torch.cuda.stream(torch.cuda.Stream()):
        for expected in (1, 0):
            with ThreadPoolExecutor(1) as pool:
                taken = _taken_by(lambda pool=pool: pool.submit(multiply).result())
            assert taken.count(32 << 20) == expected


# what is dropped is freed


class _Trained:
    """A model and its optimizer. Models of kind 2 have buffers and contain themselves."""

    def __init__(self, kind: int, place: str) -> None:
        embedding, head = nn.Embedding(128, 128), nn.Linear(128, 128, bias=kind == 0)
        if kind == 1:
            head.weight = embedding.weight
        norm = nn.BatchNorm1d(128) if kind == 2 else nn.Identity()
        self.model = nn.Sequential(embedding, head, norm).to(place)
        self.model.itself = [self.model] if kind == 2 else []
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.tokens = torch.zeros(256, dtype=torch.int64, device=place)

    def forward(self) -> torch.Tensor:
        return self.model(self.tokens).square().mean()

    def step(self) -> None:
        self.forward().backward()
        self.optimizer.step()

    def step_in_a_thread(self) -> None:
        thread = threading.Thread(target=self.step)
        thread.start()
        thread.join()

    def evaluate(self) -> None:
        with torch.inference_mode():
            self.forward()

    def clear(self) -> None:
        self.optimizer.zero_grad()

    def save_and_load(self) -> None:
        file = io.BytesIO()
        torch.save(self.optimizer.state_dict(), file)
        file.seek(0)
        self.optimizer.load_state_dict(torch.load(file))

    def tensors(self) -> Iterator[torch.Tensor]:
        yield self.tokens
        yield from self.model.buffers()
        for parameter in self.model.parameters():
            yield from (parameter, *filter(lambda x: x is not None, [parameter.grad]))
        for state in self.optimizer.state.values():
            yield from (value for name, value in state.items() if name != "step")


ACTIONS = ("forward", "step", "step_in_a_thread", "evaluate", "clear", "save_and_load")
PROGRAM = st.lists(
    st.tuples(st.sampled_from(("build", "copy", "drop", *ACTIONS)), *[st.integers(0, 2)] * 2),
    max_size=10,
)


def _do(alive: dict[int, _Trained], place: str, action: str, which: int, other: int) -> None:
    if action == "build":
        alive[which] = _Trained(other, place)
    elif action == "drop":
        alive.pop(which, None)
    elif which in alive:
        if action == "copy":
            alive[other] = copy.deepcopy(alive[which])
        else:
            getattr(alive[which], action)()


def _reachable_bytes(alive: dict[int, _Trained]) -> int:
    storages = [t.untyped_storage() for one in alive.values() for t in one.tensors()]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return sum(-(-size // 512) * 512 for size in sizes.values())


def what_a_program_builds_drops_and_builds_again_is_alive_as_on_the_host() -> None:
    for action in ("step", "step_in_a_thread"):  # they take workspaces, which stay
        getattr(_Trained(0, "cuda"), action)()
    gc.freeze()  # what was imported need not be looked at again

    @settings(max_examples=20, deadline=None, derandomize=True, database=None)
    @given(PROGRAM)
    def check(program: list[tuple[str, int, int]]) -> None:
        gc.collect()
        has_cycles = any(action == "build" and kind == 2 for action, _, kind in program)
        workspaces = _live_bytes()
        on_the_gpu: dict[int, _Trained] = {}
        on_the_host: dict[int, _Trained] = {}
        for what in program:
            _do(on_the_gpu, "cuda", *what)
            _do(on_the_host, "cpu", *what)
            if has_cycles:
                gc.collect()
            assert _live_bytes() - workspaces == _reachable_bytes(on_the_host), what

    check()


# tensors and operators of other libraries


class _Wrapper(torch.Tensor):
    """A tensor around another: it has no memory of its own."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        def unwrap(x: Any) -> Any:
            return x.inner if isinstance(x, _Wrapper) else x

        result = function(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, result)


def triton_can_be_imported_at_any_moment_and_its_autotuner_takes_memory() -> None:
    if importlib.util.find_spec("triton") is None:
        return
    import triton
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    assert triton.runtime.driver.active.get_current_target().arch == 90
    add = JITFunction(_add)
    configs = [triton.Config({"BLOCK": size}) for size in (64, 128)]
    tuned = Autotuner(add, add.arg_names, configs, ["n"], None, None)
    x = torch.ones(4, device="cuda")
    assert _taken_by(lambda: add[(1,)](x, 4, BLOCK=64)) == []
    assert max(_taken_by(lambda: tuned[(1,)](x, 4))) == 256 << 20
    assert _taken_by(lambda: tuned[(1,)](x, 4)) == []


def _add(x: Any, n: Any, BLOCK: Any) -> None: ...


def a_wrapper_tensor_can_be_trained_and_what_is_inside_is_a_parameter() -> None:
    layer = nn.Linear(16, 16, bias=False)
    layer.weight = nn.Parameter(_Wrapper(torch.ones(16, 16, device="cuda")))
    layer(torch.ones(4, 16, device="cuda")).sum().backward()
    assert isinstance(layer.weight.grad, _Wrapper)
    ownership = Ownership(SESSION.device.block_id)
    ownership._saw_module(layer)
    ownership.look()
    assert sorted(ownership.category_of.values()) == ["gradients", "parameters"]


def sharded_training_of_one_rank_takes_memory_on_streams_of_its_own() -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    model = fully_shard(nn.Sequential(fully_shard(nn.Linear(64, 64)), nn.Dropout()).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    assert len({a.stream for a in SESSION.device.allocations()}) > 1
    torch.distributed.destroy_process_group()


def the_cuda_kernel_of_a_custom_operator_runs_if_it_is_python_and_runs_through() -> None:
    operators = torch.library.Library("vramcast_programs", "FRAGMENT")
    operators.define("scratch(Tensor x) -> Tensor")
    operators.define("compiled(Tensor x) -> Tensor")

    def scratch(x: torch.Tensor) -> torch.Tensor:
        torch.empty(KIB, device="cuda")
        return torch.empty_like(x)

    def compiled(x: torch.Tensor) -> torch.Tensor:
        raise OSError("a library that needs a GPU")

    operators.impl("scratch", scratch, "CUDA")
    operators.impl("compiled", compiled, "CUDA")
    operators.impl("compiled", lambda x: torch.empty(8, device=x.device), "Meta")
    x = torch.ones(4, device="cuda")
    assert _taken_by(lambda: torch.ops.vramcast_programs.scratch(x)) == [4 * KIB, -4 * KIB, 16]
    assert torch.ops.vramcast_programs.compiled(x).shape == (8,)


def flex_attention_runs_as_eager_code() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.ones(1, 2, 128, 16, device="cuda", requires_grad=True)
    flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + i - j).sum().backward()
    assert q.grad is not None


def products_keep_a_workspace_share_one_or_give_it_back_as_the_torch_version_has_it() -> None:
    gpu, x = SESSION.gpu.model, torch.zeros(16, 16, device="cuda")
    h = x.bfloat16()
    facts = gpu.num_multiprocessors, gpu.max_threads_per_multiprocessor
    set_gpu = SESSION.device.library.vramcast_set_gpu
    try:
        set_gpu(*facts, 64 * KIB, 32 * KIB, False)
        for _ in range(2):
            assert _taken_by(lambda: x @ x) == [KIB, 64 * KIB, -64 * KIB]
            assert _taken_by(lambda: torch.addmm(x[0], x, x)) == [KIB, 32 * KIB, -32 * KIB]
            assert _taken_by(lambda: torch.addmm(x, x, x)) == [KIB, 64 * KIB, -64 * KIB]
            assert _taken_by(lambda: torch.addmm(h, h, h)) == [KIB // 2, 32 * KIB, -32 * KIB]
        set_gpu(*facts, 64 * KIB, 0, True)
        assert _taken_by(lambda: torch.addmm(x[0], x, x)) == [KIB, 64 * KIB]
        assert _taken_by(lambda: x @ x) == [KIB]
    finally:
        set_gpu(*facts, *gemm_workspaces(gpu.capability, None, torch.__version__))


def a_mask_of_classes_has_one_place_for_each_row() -> None:
    labels = torch.arange(128, device="cuda")
    scores = torch.randn(128, 5000, device="cuda")
    by_index, by_scatter = torch.zeros_like(scores), torch.zeros_like(scores)
    by_index[torch.arange(128), labels] = 1
    by_scatter.scatter_(1, labels[:, None], 1.0)
    assert scores[by_index == 1].shape == scores[by_scatter.bool()].shape == (128,)


def main() -> None:
    programs = [f for f in globals().values() if getattr(f, "__module__", "") == "__main__"]
    warnings.simplefilter("ignore")
    for program in programs:
        if program is main or program.__name__.startswith("_"):
            continue
        error = ""
        try:
            with SESSION.recording():
                program()
        except Exception:
            error = traceback.format_exc()
        print(json.dumps([program.__name__, error]), flush=True)


if __name__ == "__main__":
    main()
