"""What is dropped is freed; tensors of other libraries: run by test_device_programs.py.

python tests/simulate/library_programs.py
"""

from __future__ import annotations

from program_device import KIB, SESSION, live_bytes, run_programs, taken_by

# isort: split
# the device is loaded before torch
import copy
import gc
import importlib.util
import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._pytree import tree_map

from vramcast.simulate.ownership import Ownership
from vramcast.simulate.workspaces import gemm_workspaces

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

    @settings(max_examples=12, deadline=None, derandomize=True, database=None)
    @given(PROGRAM)
    def check(program: list[tuple[str, int, int]]) -> None:
        gc.collect()
        has_cycles = any(action == "build" and kind == 2 for action, _, kind in program)
        workspaces = live_bytes()
        on_the_gpu: dict[int, _Trained] = {}
        on_the_host: dict[int, _Trained] = {}
        for what in program:
            _do(on_the_gpu, "cuda", *what)
            _do(on_the_host, "cpu", *what)
            if has_cycles:
                gc.collect()
            assert live_bytes() - workspaces == _reachable_bytes(on_the_host), what

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
    assert taken_by(lambda: add[(1,)](x, 4, BLOCK=64)) == []
    assert max(taken_by(lambda: tuned[(1,)](x, 4))) == 256 << 20
    assert taken_by(lambda: tuned[(1,)](x, 4)) == []


def _add(x: Any, n: Any, BLOCK: Any) -> None: ...


class _Scripted(torch.jit.ScriptModule):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)

    @torch.jit.script_method
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def a_scripted_module_keeps_its_parameters_elsewhere() -> None:
    """torch.jit removes `_parameters` and `_buffers` from what a module has of its own."""
    module = _Scripted().cuda()
    ownership = Ownership(SESSION.device.block_ids)
    ownership._saw_module(module)
    ownership._saw_module(module.inner)
    assert ownership.look() == (8, 8)
    assert list(ownership.category_of.values()) == ["parameters", "parameters"]


def a_wrapper_tensor_can_be_trained_and_what_is_inside_is_a_parameter() -> None:
    layer = nn.Linear(16, 16, bias=False)
    layer.weight = nn.Parameter(_Wrapper(torch.ones(16, 16, device="cuda")))
    layer(torch.ones(4, 16, device="cuda")).sum().backward()
    assert isinstance(layer.weight.grad, _Wrapper)
    ownership = Ownership(SESSION.device.block_ids)
    ownership._saw_module(layer)
    ownership.look()
    assert sorted(ownership.category_of.values()) == ["gradients", "parameters"]


@torch.jit.script
def _gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = x + bias
    return y * 0.5 * (1.0 + torch.tanh(0.79788456 * y * (1 + 0.044715 * y * y)))


def of_operators_that_torch_jit_fuses_only_the_result_takes_memory() -> None:
    """As on an H200 (benchmarks/programs, scripted_chain): the first call is not yet fused."""
    x, bias = torch.ones(64, 1024, device="cuda"), torch.ones(1024, device="cuda")
    _gelu(x, bias)
    assert taken_by(lambda: _gelu(x, bias)) == [64 * 1024 * 4]


def what_torch_jit_fuses_for_a_gradient_keeps_what_the_gradient_needs() -> None:
    x, bias = torch.ones(64, 1024, device="cuda"), torch.ones(1024, device="cuda")
    x.requires_grad_()
    for _ in range(3):
        _gelu(x, bias).sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape


def pynvml_answers_for_the_simulated_gpu() -> None:
    """As in a function that Hugging Face's documentation has for printing the memory taken."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    kept = torch.ones(64 << 20, device="cuda")
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    assert memory.used - before == kept.nbytes and memory.total > memory.used
    assert pynvml.nvmlDeviceGetName(handle) == torch.cuda.get_device_name()
    assert pynvml.nvmlDeviceGetCount() == 1
    assert "GPU:0" in torch.cuda.list_gpu_processes()
    with pytest.raises(pynvml.NVMLError, match="Not Supported"):
        pynvml.nvmlDeviceGetFanSpeed(handle)
    for number in (-1, 1):
        with pytest.raises(pynvml.NVMLError, match="Invalid Argument"):
            pynvml.nvmlDeviceGetHandleByIndex(number)


def what_torch_func_puts_into_a_module_is_not_its_own() -> None:
    layer = torch.nn.Linear(2, 3, device="cuda")
    ownership = Ownership(SESSION.device.block_ids)
    ownership._saw_module(layer)

    def looked_at(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        layer.register_forward_pre_hook(lambda *_: ownership.look() and None)
        return torch.func.functional_call(layer, weights, (x,)).sum()

    x = torch.ones(5, 2, device="cuda")
    each = torch.func.vmap(torch.func.grad(looked_at), (None, 0))
    assert each(dict(layer.named_parameters()), x)["weight"].shape == (5, 3, 2)
    assert ownership.look() == (9, 9)


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


def gradients_that_accumulate_in_buckets_are_divided_one_by_one() -> None:
    """As DistributedDataParallel did on an H200; the first pass writes what it has divided."""
    torch.distributed.init_process_group("nccl", rank=0, world_size=2)
    model = nn.parallel.DistributedDataParallel(
        nn.Linear(64, 64).cuda(), gradient_as_bucket_view=True
    )

    def num_divisions() -> int:
        works = map(SESSION.device.operator_work, SESSION.device.work(0))
        return sum(work.operator == "aten::div_" for work in works)

    for num_expected in (0, 2, 4):  # a weight and a bias
        model(torch.ones(4, 64, device="cuda")).sum().backward()
        assert num_divisions() == num_expected
    torch.distributed.destroy_process_group()


def the_host_waits_where_the_program_synchronizes() -> None:
    """For an event only if nothing was launched after it: else the GPU may be past it."""

    def num_waits() -> int:
        works = map(SESSION.device.operator_work, SESSION.device.work(0))
        return sum(work.operator == "vramcast::synchronize" for work in works)

    event = torch.cuda.Event()
    x = torch.ones(4, device="cuda") + 1
    before = num_waits()
    event.record()
    waits = (torch.cuda.synchronize, torch.cuda.current_stream().synchronize, event.synchronize)
    for number, wait in enumerate(waits, 1):
        wait()
        assert num_waits() == before + number
    x.add_(1)
    event.synchronize()
    assert num_waits() == before + 3


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
    assert taken_by(lambda: torch.ops.vramcast_programs.scratch(x)) == [4 * KIB, -4 * KIB, 16]
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
            assert taken_by(lambda: x @ x) == [KIB, 64 * KIB, -64 * KIB]
            assert taken_by(lambda: torch.addmm(x[0], x, x)) == [KIB, 32 * KIB, -32 * KIB]
            assert taken_by(lambda: torch.addmm(x, x, x)) == [KIB, 64 * KIB, -64 * KIB]
            assert taken_by(lambda: torch.addmm(h, h, h)) == [KIB // 2, 32 * KIB, -32 * KIB]
        set_gpu(*facts, 64 * KIB, 0, True)
        assert taken_by(lambda: torch.addmm(x[0], x, x)) == [KIB, 64 * KIB]
        assert taken_by(lambda: x @ x) == [KIB]
    finally:
        set_gpu(*facts, *gemm_workspaces(gpu.capability, None, torch.__version__))


def a_mask_of_classes_has_one_place_for_each_row() -> None:
    labels = torch.arange(128, device="cuda")
    scores = torch.randn(128, 5000, device="cuda")
    by_index, by_scatter = torch.zeros_like(scores), torch.zeros_like(scores)
    by_index[torch.arange(128), labels] = 1
    by_scatter.scatter_(1, labels[:, None], 1.0)
    assert scores[by_index == 1].shape == scores[by_scatter.bool()].shape == (128,)


def a_picture_that_is_shifted_along_two_dimensions_is_made_twice() -> None:
    """As in Swin's blocks."""
    picture = torch.zeros(16, 16, 4, device="cuda")
    assert taken_by(lambda: torch.roll(picture, (1, 1), (0, 1))) == [4 * KIB, 4 * KIB, -4 * KIB]
    assert taken_by(lambda: torch.roll(picture, 1)) == [4 * KIB]
    places = torch.arange(4, device="cuda")
    assert torch.roll(places, 1, 0).tolist() == [3, 0, 1, 2]


def a_picture_is_sampled_by_cudnn_at_a_grid_with_aligned_corners() -> None:
    picture = torch.zeros(2, 4, 8, 8, device="cuda", requires_grad=True)
    grid = torch.zeros(2, 16, 16, 2, device="cuda", requires_grad=True)
    sampled: list[torch.Tensor] = []

    def sample() -> None:
        sampled.append(nn.functional.grid_sample(picture, grid, align_corners=True))

    assert taken_by(sample) == [8 * KIB] and sampled[0].shape == (2, 4, 16, 16)
    sampled[0].backward(torch.zeros_like(sampled[0]))
    assert picture.grad is not None and picture.grad.shape == picture.shape
    assert grid.grad is not None and grid.grad.shape == grid.shape


def sparse_tensors_of_the_host_have_gradients() -> None:
    weight = torch.ones(4, 4, requires_grad=True)
    weight.to_sparse().to_dense().sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [[1.0] * 4] * 4


def products_of_compressed_matrices_are_sampled_or_refused_as_on_a_gpu() -> None:
    matrix = torch.eye(4).to_sparse_csr().cuda()
    dense = torch.zeros(4, 4, device="cuda")
    assert torch.sparse.sampled_addmm(matrix, dense, dense).values().shape == (4,)
    try:
        torch.sparse.mm(matrix, dense, "amax")
    except NotImplementedError as error:
        assert "SparseCsrCUDA" in str(error)
    else:
        raise AssertionError("torch has this for the CPU only")


def counted_weights_are_summed_in_double_precision_unless_they_are_single() -> None:
    places = torch.tensor([0, 1, 1], device="cuda")
    dtypes = [torch.bincount(places, places.to(t)).dtype for t in (torch.float32, torch.int64)]
    assert dtypes == [torch.float32, torch.float64]


def attention_by_rows_has_gradients() -> None:
    """As nested tensors and libraries call it."""
    q = torch.zeros(2, 16, 4, 8, device="cuda", requires_grad=True)
    out = torch.ops.aten._efficient_attention_forward(
        q, q, q, None, None, None, None, None, 0.0, 0, compute_log_sumexp=True
    )[0]
    out.sum().backward()
    assert q.grad is not None and q.grad.shape == q.shape


def statistics_of_an_evaluated_batch_norm_can_be_asked_for() -> None:
    x, one = torch.zeros(2, 4, 8, device="cuda"), torch.ones(4, device="cuda")
    out = torch.ops.aten._native_batch_norm_legit(x, one, one, one, one, False, 0.1, 1e-5)
    assert [tuple(t.shape) for t in out] == [(2, 4, 8), (4,), (4,)]


def large_tensors_need_no_kernel_of_the_host_for_their_shapes() -> None:
    """Operators for which torch has no Meta kernel at all; a host kernel may run for small ones."""
    layer = nn.Linear(8192, 8192, device="cuda")
    update = torch.optim.AdamW(layer.parameters(), lr=torch.tensor(1e-3), fused=True)
    layer(torch.zeros(1, 8192, device="cuda")).sum().backward()
    assert taken_by(update.step)[:2] == [4, 4 * 8192**2]
    assert taken_by(update.step) == []
    ones = torch.ones(8192, 8192, device="cuda", requires_grad=True)
    numbers_of_the_host = torch.get_rng_state()
    torch.distributions.Beta(ones, ones).rsample().sum().backward()
    assert torch.equal(torch.get_rng_state(), numbers_of_the_host)
    classes = torch.zeros(8192, 8192, dtype=torch.int64, device="cuda")
    nn.functional.multilabel_margin_loss(ones.half(), classes).backward()
    nn.functional.multi_margin_loss(ones.half(), classes[0]).backward()
    assert ones.grad is not None and ones.grad.shape == ones.shape


def a_profiler_of_the_program_sees_the_host_and_asks_for_no_events_of_the_gpu() -> None:
    """One warning of forty lines for every operator, before."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as one:
        torch.ones(4, device="cuda").sum()
    with torch.autograd.profiler.profile(use_device="cuda") as other:
        torch.ones(4, device="cuda").sum()
    for profiler in (one, other):
        assert {"aten::ones", "aten::sum"} <= {event.key for event in profiler.key_averages()}
    kinds = {one.profiler.profiler_kind, other.profiler_kind}  # type: ignore[union-attr]
    assert kinds == {torch.autograd.ProfilerState.KINETO}


def ranges_for_nvidias_profilers_can_be_switched_on_and_off() -> None:
    with torch.cuda.profiler.profile(), torch.autograd.profiler.emit_nvtx(record_shapes=True):
        torch.ones(4, device="cuda").sum()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())


if __name__ == "__main__":
    run_programs()
