"""What programs do with storages, streams and threads of a GPU: run by test_device_programs.py.

python tests/simulate/device_programs.py
"""

from __future__ import annotations

from program_device import BEFORE, KIB, SESSION, live_bytes, run_programs, taken_by

# isort: split
# the device is loaded before torch
import copy
import ctypes
import functools
import io
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from vramcast.hardware.calibration.table import minor_version
from vramcast.simulate.patches import bitsandbytes_library
from vramcast.simulate.python_calls import PythonCalls
from vramcast.simulate.same_passes import FEWEST_GROWING, GROWING, NOTE, RUN_ONE_IN, SamePasses
from vramcast.simulate.workspaces import GIVEN_BACK_SINCE
from vramcast.tracing.trace import split_holds
from vramcast.units import format_bytes

# storages


def a_sparse_matrix_of_the_host_is_computed_however_large_it_would_be_dense() -> None:
    matrix = torch.eye(600).to_sparse()
    assert matrix._nnz() == 600
    assert torch.equal(matrix @ torch.full((600, 2), 3.0), torch.full((600, 2), 3.0))


def what_is_made_of_a_list_is_like_its_tensors() -> None:
    """Also where torch's Meta kernels are not asked, which see every tensor of thousands."""
    half, wide = (torch.ones(4, 6, device="cuda", dtype=t) for t in (torch.half, torch.double))
    given = [half, wide, torch.ones(2, 8, 3, 3, device="cuda"), torch.ones((), device="cuda")]
    others = [[one.t() if one.dim() == 2 else one for one in given], [given[2][:, ::2], half[:0]]]
    last = [given[2].to(memory_format=torch.channels_last), given[0].expand(3, 4, 6)]
    for tensors in (given, *others, last, [half.int(), half.bool()]):
        for make, one in ((torch._foreach_sqrt, torch.sqrt), (torch._foreach_exp, torch.exp)):
            for found, expected in zip(make(tensors), map(one, tensors), strict=True):
                assert found.dtype is expected.dtype
                assert (found.shape, found.stride()) == (expected.shape, expected.stride())
    assert torch._foreach_mul([given[2]], 2j)[0].is_complex()
    made = torch._foreach_addcdiv(given, given, given, [1.0] * 4)
    assert [one.dtype for one in made] == [one.dtype for one in given]
    assert torch._foreach_norm(given)[0].shape == ()
    assert taken_by(lambda: torch._foreach_add(given[:2], given[:2])) == [48, 192]


def distinct_rows_are_counted_in_the_order_in_which_they_come() -> None:
    rows = np.array([[3, 1], [1, 3], [3, 1], [0, 0], [1, 3]], np.uint64)
    first, place = SESSION.device.distinct(rows)
    assert first == [0, 1, 3]
    assert place.tolist() == [0, 1, 0, 2, 1]
    assert [len(part) for part in SESSION.device.distinct(rows[:0])] == [0, 0]


def products_of_half_precision_add_into_single_precision() -> None:
    """TRL's losses do; torch 2.11 has the wrong Meta kernel for it."""
    left = torch.zeros(3, 8, 4, device="cuda", dtype=torch.bfloat16)
    right, sums = left.transpose(1, 2).contiguous(), torch.zeros(3, 8, 8, device="cuda")
    into = {"out_dtype": torch.float32}
    assert torch.addmm(sums[0], left[0], right[0], out=sums[0], **into).dtype is torch.float32
    assert torch.addmm(sums[0], left[0], right[0], **into).shape == (8, 8)
    assert torch.baddbmm(sums, left, right, **into).shape == (3, 8, 8)
    torch.baddbmm(sums, left, right, out=sums, **into)
    torch.bmm(left, right, out=sums, **into)


def the_binary_cross_entropy_keeps_the_buffer_of_its_losses() -> None:
    """As in a trace of an H200."""
    x = torch.ones(KIB, device="cuda")
    assert taken_by(lambda: nn.functional.binary_cross_entropy(x, x)) == [4 * KIB, 4, -4]


def the_gradient_of_an_upsampled_part_has_its_channels_where_the_whole_has_them() -> None:
    whole = torch.randn(2, 16, 8, 8, device="cuda").to(memory_format=torch.channels_last)
    part, backward = whole[:, :8], torch.ops.aten.upsample_bilinear2d_backward
    half = backward(part, [8, 8], [2, 8, 4, 4], False)
    assert half.is_contiguous(memory_format=torch.channels_last)
    assert taken_by(lambda: backward(part, [8, 8], [2, 8, 4, 4], False)) == [KIB, 4 * KIB, -4 * KIB]
    same = taken_by(lambda: backward(part, [8, 8], [2, 8, 8, 8], False))
    assert same == [4 * KIB], "nothing changes its size: it is copied"


def a_layer_norm_makes_its_gradients_before_it_copies_what_is_not_dense() -> None:
    x, grad = torch.randn(64, 256, device="cuda"), torch.randn(256, 64, device="cuda").t()
    weight, moments = torch.ones(256, device="cuda"), torch.ones(64, 1, device="cuda")
    backward = torch.ops.aten.native_layer_norm_backward
    taken = taken_by(lambda: backward(grad, x, [256], moments, moments, weight, weight, [True] * 3))
    assert taken[:4] == [64 * KIB, KIB, KIB, 64 * KIB]


def a_deep_copy_takes_the_whole_storage_and_views_stay_views() -> None:
    x = torch.zeros(KIB, device="cuda")
    scalar = [4, -4]  # torch makes a tensor of no dimensions, and gives it the copied storage
    assert taken_by(lambda: copy.deepcopy(x)) == [4 * KIB, *scalar]
    whole, part = copy.deepcopy((x, x[8:16]))
    assert part.data_ptr() == whole.data_ptr() + 8 * 4


def tied_weights_stay_tied_in_a_deep_copy() -> None:
    embedding, head = nn.Embedding(64, 16), nn.Linear(16, 64, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleList([embedding, head, nn.BatchNorm1d(16)]).cuda()
    before = live_bytes()
    copied = copy.deepcopy(model)
    assert copied[0].weight is copied[1].weight and copied[2].running_mean.is_cuda
    assert live_bytes() == 2 * before


def a_number_expanded_to_a_trillion_elements_is_not_gone_through() -> None:
    one = torch.ones((), device="cuda")
    began = time.process_time()
    few, many = one.expand(1000).sum(), one.expand(2**40).sum()
    assert time.process_time() - began < 30, "gone through, it would take minutes"
    assert few.item() == 1000 and many.item() > 0


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
    assert taken_by(lambda: copied.resize_(2 * KIB)) == [2 * KIB, -KIB]
    assert copied.nbytes() == 2 * KIB and copied[5] == 3
    assert taken_by(lambda: copied.resize_(0)) == [-2 * KIB]
    x = torch.empty(0, device="cuda").set_(storage, 4, (8, 2), (2, 1))
    assert x.data_ptr() == storage.data_ptr() + 4 * 4 and x.shape == (8, 2)


def safetensors_are_loaded_onto_the_gpu() -> None:
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.safetensors")
        save_file(nn.Linear(16, 16).cuda().state_dict(), file)
        assert taken_by(lambda: load_file(file, device="cuda")) == [64, 4 * 256]


def tensor_types_of_the_gpu_make_tensors_there() -> None:
    x = torch.cuda.FloatTensor(2, 3)
    assert (
        x.is_cuda and isinstance(x, torch.cuda.FloatTensor) and x.type() == "torch.cuda.FloatTensor"
    )
    assert torch.ones(3).type(torch.cuda.HalfTensor).dtype == torch.float16
    assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]


def torch_tensor_is_of_the_default_type() -> None:
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    assert torch.Tensor([1.0]).is_cuda and torch.Tensor(2, 3).is_cuda and torch.zeros(2).is_cuda
    assert nn.Parameter(torch.Tensor(2)).is_cuda
    torch.set_default_tensor_type("torch.FloatTensor")
    assert not torch.Tensor([1.0]).is_cuda and not torch.zeros(2).is_cuda


def questions_that_programs_ask_in_passing_are_answered() -> None:
    free_bytes, total_bytes = torch.cuda.cudart().cudaMemGetInfo(0)
    assert 0 < free_bytes <= total_bytes
    with torch.cuda.nvtx.range("step"):
        assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
    assert not torch.cuda.can_device_access_peer(0, 0)
    torch.cuda.memory._record_memory_history()
    address = torch.cuda.caching_allocator_alloc(KIB)
    assert taken_by(lambda: torch.cuda.caching_allocator_delete(address)) == [-KIB]


# forward passes of an evaluation


def _evaluated(module: nn.Module, num_passes: int, run: Callable[..., Any]) -> list[int]:
    """What passes take, each with its own autocast, which gives its weights back in any order."""

    def evaluate() -> None:
        for _ in range(num_passes):
            x = torch.randn(1024, 32, device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                y = run(type(module).__call__, module, x)
            assert y.shape == (1024, 8) and y.dtype is torch.bfloat16

    with torch.no_grad():
        taken = taken_by(evaluate)
    parts = itertools.groupby(taken, lambda size: size > 0)
    return [size for is_new, part in parts for size in (part if is_new else sorted(part))]


def a_pass_that_vmap_makes_is_run_each_time() -> None:
    passes, layer = SamePasses(SESSION.device, print), torch.nn.Linear(2, 3, device="cuda")
    x = torch.ones(5, 2, device="cuda")
    with torch.no_grad():
        for _ in range(9):
            made = torch.func.vmap(lambda row: passes.run(torch.nn.Linear.forward, layer, row))(x)
            assert made.shape == (5, 3)


def passes_that_are_alike_take_the_same_whether_they_run_or_not() -> None:
    notes: set[str] = set()
    passes = SamePasses(SESSION.device, notes.add)
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda().eval()
    _evaluated(module, 1, lambda call, *arguments: call(*arguments))  # takes cuBLAS' workspace
    num_calls = 0

    def count(*_: object) -> None:
        nonlocal num_calls
        num_calls += 1

    module[1].forward = lambda x: count() or nn.functional.gelu(x)
    expected = _evaluated(module, 20, lambda call, *arguments: call(*arguments))
    with passes.repeating():
        assert _evaluated(module, 20, passes.run) == expected
    assert 20 < num_calls < 30 and len(notes) == 1


def of_passes_whose_input_grows_some_run_and_all_results_have_their_size() -> None:
    notes: set[str] = set()
    lengths: list[int] = []
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda().eval()
    module[1].forward = lambda x: lengths.append(len(x)) or nn.functional.gelu(x)

    def sample(run: Callable[..., Any]) -> None:
        for length in range(1024, 1124 + FEWEST_GROWING):
            y = run(type(module).__call__, module, torch.randn(length, 32, device="cuda"))
            assert y.shape == (length, 8) and y.is_contiguous()

    def run_all(call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    with torch.no_grad():
        sample(run_all)  # takes cuBLAS' workspace
        expected = taken_by(lambda: sample(run_all))
        lengths.clear()
        taken = taken_by(lambda: sample(SamePasses(SESSION.device, notes.add).run))
    assert notes == {GROWING} and FEWEST_GROWING <= len(lengths) < FEWEST_GROWING + 16
    assert lengths[-1] > 1123 + FEWEST_GROWING - RUN_ONE_IN
    # one that is not run takes as much as the last that ran
    assert len(taken) == len(expected)
    most_shorter = RUN_ONE_IN * 64 * 4
    assert all(
        abs(seen) <= abs(size) <= abs(seen) + most_shorter
        for seen, size in zip(taken, expected, strict=True)
    )


def blocks_of_a_sample_between_the_growing_one_are_known_too() -> None:
    notes: set[str] = set()
    num_run: list[int] = []
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).cuda().eval()
    module[1].forward = lambda x: num_run.append(len(x)) or nn.functional.gelu(x)
    passes = SamePasses(SESSION.device, notes.add)
    with torch.no_grad():
        for length in range(1, 101 + FEWEST_GROWING):
            for size in (512, length):
                x = torch.randn(size, 32, device="cuda")
                assert passes.run(type(module).__call__, module, x).shape == (size, 8)
    assert notes == {NOTE, GROWING} and len(num_run) < FEWEST_GROWING + 32


@dataclass
class _Cache:
    keys: torch.Tensor
    length: int


class _WithCache(nn.Module):
    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.layer, self.is_changed, self.num_run = nn.Linear(32, 32), is_changed, [0]

    def forward(self, x: torch.Tensor, cache: _Cache) -> tuple[torch.Tensor, _Cache]:
        self.num_run[0] += 1
        keys = torch.cat([cache.keys, self.layer(x)])
        if not self.is_changed:
            return keys.sum(0, keepdim=True), _Cache(keys, cache.length + 1)
        cache.keys, cache.length = keys, len(keys)
        return keys.sum(0, keepdim=True), cache


def a_sample_with_a_cache_that_is_given_back_does_not_run_every_pass() -> None:
    """One that is changed in place is: nobody else would change it."""
    for is_changed in (False, True):
        module, num_passes = _WithCache(is_changed).cuda().eval(), FEWEST_GROWING + 100

        def sample(run: Callable[..., Any], module: nn.Module, num_passes: int) -> list[int]:
            x, cache = torch.randn(1, 32, device="cuda"), _Cache(torch.ones(1, 32).cuda(), 1)
            lengths = []
            for _ in range(num_passes):
                x, cache = run(type(module).__call__, module, x, cache)
                lengths.append(cache.length)
                assert cache.keys.shape == (cache.length, 32) and x.shape == (1, 32)
            return lengths

        notes: set[str] = set()
        with torch.no_grad():
            found = sample(SamePasses(SESSION.device, notes.add).run, module, num_passes)
        assert found == list(range(2, num_passes + 2))
        assert notes == (set() if is_changed else {GROWING})
        assert (module.num_run[0] == num_passes) is is_changed


def passes_that_keep_something_or_draw_numbers_all_run() -> None:
    class Keeps(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x
            return super().forward(x)

    class Draws(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.rand(1).item()

    class Reads(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.sum().item() > -1e9 else x

    for kind in (Keeps, Draws, Reads):
        notes: set[str] = set()
        module = kind(32, 8).cuda().eval()
        _evaluated(module, 20, SamePasses(SESSION.device, notes.add).run)
        assert not notes


def angle_and_clamp_make_a_copy_before_their_result() -> None:
    """As traces of gateloop and gpt_vae on an H200 show."""
    turned = torch.zeros(4096, dtype=torch.complex64, device="cuda")
    counted = torch.ones(512, dtype=torch.long, device="cuda")
    assert taken_by(turned.angle)[:3] == [32768, 16384, -32768]
    assert taken_by(lambda: counted.clamp(min=1e-5))[:3] == [2048, 2048, -2048]
    assert taken_by(lambda: counted.clamp(min=1))[0] == 4096


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
        after.append(live_bytes())
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
    large = torch.empty(1 << 15, 1 << 15, device="cuda")

    def held_after(wait: Callable[[], object], is_busy: bool = True) -> bool:
        x = torch.empty(KIB, device="cuda")
        number = len(SESSION.device.allocations())
        x.record_stream(side)
        if is_busy:  # for longer than the host takes here
            torch.mm(large, large, out=large)
        del x
        wait()
        torch.empty(1, device="cuda")
        events, held_until, at_most = split_holds(SESSION.device.events())
        assert at_most[number] >= held_until[number]
        return held_until[number] > len(events)

    recorded_before = side.record_event()
    assert not held_after(lambda: None, is_busy=False), "the GPU has nothing to do"
    assert held_after(lambda: None)
    assert held_after(recorded_before.synchronize)
    assert held_after(other.synchronize)
    assert not held_after(lambda: side.record_event().synchronize())
    assert not held_after(torch.cuda.synchronize)
    # the time in which the host waits for one stream passes for the other one too
    assert not held_after(lambda: torch.cuda.current_stream().record_event().synchronize())
    # the default stream waits for the other, and the host for the default stream
    torch.cuda.current_stream().wait_stream(side)
    assert not held_after(
        lambda: (torch.cuda.current_stream().wait_stream(side), torch.ones(1).cuda().item())
    )
    # a host is at most so many launches ahead of its GPU
    x = torch.ones(1, device="cuda")
    assert not held_after(lambda: [x.add_(1) for _ in range(1100)])


def what_the_gpu_draws_leaves_the_generator_of_the_host_as_it_is() -> None:
    """Wav2Vec2 asks that one which layers to drop."""
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    one, other = (torch.randint(0, 9, (50,), device="cuda") for _ in range(2))
    assert not torch.equal(one.cpu(), other.cpu())
    torch.randperm(9, device="cuda")
    torch.randn(9, device="cuda").sort()
    torch.randn(9, device="cuda").topk(3)
    assert torch.equal(torch.rand(4), wanted)


def pinned_memory_is_known_as_such() -> None:
    pinned = torch.ones(4).pin_memory()
    assert pinned.is_pinned() and pinned[2:].is_pinned() and not torch.ones(4).is_pinned()
    assert pinned.cuda(non_blocking=True).sum().item() == 4


def a_copy_to_the_host_goes_through_a_dense_buffer_of_the_gpu() -> None:
    """As torch's Copy.cu: it converts on the host, or on the GPU if the host does not wait."""
    dense = torch.zeros(32, 32, device="cuda")
    assert taken_by(lambda: dense.to("cpu", torch.uint8)) == []
    assert taken_by(lambda: dense.t().cpu()) == []
    assert taken_by(lambda: dense.t().to("cpu", torch.uint8)) == [4 * KIB, -4 * KIB]
    waits_not = functools.partial(dense.to, "cpu", torch.uint8, non_blocking=True)
    assert taken_by(waits_not) == [KIB, -KIB]


def a_copy_from_the_host_is_converted_on_the_gpu_if_the_host_does_not_wait() -> None:
    host = torch.zeros(32, 32)
    assert taken_by(lambda: host.to("cuda", torch.float16)) == [2 * KIB]
    waits_not = functools.partial(host.to, "cuda", torch.float16, non_blocking=True)
    assert taken_by(waits_not) == [2 * KIB, 4 * KIB, -4 * KIB]


# torch itself


def torch_describes_its_build_and_has_the_parts_that_no_one_imported() -> None:
    assert "CUDA" in torch.__config__.show()
    assert torch.broadcast_shapes((2, 1), (1, 3)) == (2, 3)


def a_product_in_8_bits_into_a_given_tensor_is_not_computed_on_the_host() -> None:
    left, right = (torch.empty(64, 64, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    out, one = (
        torch.empty(64, 64, device="cuda", dtype=torch.bfloat16),
        torch.ones((), device="cuda"),
    )
    torch._scaled_mm(left, right.t(), one, one, out_dtype=torch.bfloat16, out=out)
    assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::_scaled_mm.out", "Meta")


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

    is_kept = minor_version(torch.__version__) < GIVEN_BACK_SINCE
    with torch.cuda.stream(torch.cuda.Stream()):
        for expected in (1, 0 if is_kept else 1):
            with ThreadPoolExecutor(1) as pool:
                taken = taken_by(lambda pool=pool: pool.submit(multiply).result())
            assert taken.count(32 << 20) == expected


# Python functions that the program calls


def _add(a: int, b: int) -> int:
    return a + b


def _num_calls_in(run: Callable[[], object]) -> int:
    calls = PythonCalls(SESSION.device.library)
    calls.begin_step()
    run()
    calls.stop()
    return calls.of_step


def python_of_torch_cuda_counts_as_on_a_gpu() -> None:
    """24 or 25 for each on an H200 (benchmarks/step_time/host_pieces.jsonl: synchronized)."""
    again = lambda: [torch.cuda.synchronize() for _ in range(10)]  # noqa: E731
    assert 200 <= _num_calls_in(again) <= 270


def large_operators_of_the_host_are_noted_with_their_bytes() -> None:
    def noted() -> list[int]:
        works = map(SESSION.device.operator_work, SESSION.device.work(0))
        return [work.sizes[0] for work in works if work.operator == "vramcast::host"]

    rows = torch.arange(256)
    assert torch.add(rows, 1).view(16, 16).shape == (16, 16) and not noted()
    (rows[:, None] - rows).abs()
    assert noted() == [(256 * 256 + 256 + 256) * 8, 2 * 256 * 256 * 8]


def a_pointer_given_to_bitsandbytes_stands_for_its_tensor() -> None:
    library = bitsandbytes_library._Library(SESSION.gpu)
    x = torch.empty(1000, device="cuda")
    managed = library.cget_managed_ptr(ctypes.c_size_t(100))
    library.cadam(ctypes.c_void_p(x.data_ptr()), managed, None, ctypes.c_int32(7), 0.5)
    works = map(SESSION.device.operator_work, SESSION.device.work(0))
    found = [work for work in works if work.operator.startswith("bitsandbytes")]
    assert [(w.operator, w.num_bytes) for w in found] == [("bitsandbytes::cadam", 4100)]


def every_function_of_the_program_counts_each_time_it_is_called() -> None:
    def add_all() -> int:
        return functools.reduce(_add, range(10))

    assert _num_calls_in(add_all) == 1 + 9
    assert _num_calls_in(lambda: (add_all(), add_all())) == 1 + 2 * (1 + 9)


def functions_that_a_backward_pass_calls_count_too() -> None:
    x = torch.ones(8, device="cuda", requires_grad=True)
    (x * 2).sum().backward()  # autograd's thread is known from its first operator on

    def step(times: int) -> None:
        y = x * 2
        y.register_hook(lambda grad: functools.reduce(_add, range(times)) and grad)
        y.sum().backward()

    few, many = (_num_calls_in(lambda n=n: step(n)) for n in (10, 30))
    assert many - few == 20


def what_a_function_calls_that_is_kept_from_compilation_counts_too() -> None:
    kept = torch._disable_dynamo(lambda: functools.reduce(_add, range(10)))
    kept()
    assert _num_calls_in(kept) >= 1 + 9


def what_the_simulation_calls_does_not_count() -> None:
    assert _num_calls_in(lambda: format_bytes(5 << 20)) == 1


def a_module_of_torch_counts_with_its_own_python() -> None:
    model, x = nn.Linear(4, 4), torch.zeros(4, 4)
    # at least Module.__call__ and forward; the kernel itself is C++
    assert 2 <= _num_calls_in(lambda: model(x)) < 20


def batch_norm_of_volumes_with_channels_last_sums_what_it_has_converted() -> None:
    """As an H200 did in the step x3d-channels_last-amp-B4 of the suite wide."""
    volumes = torch.empty(4, 48, 8, 56, 56, device="cuda", dtype=torch.bfloat16)
    volumes = volumes.to(memory_format=torch.channels_last_3d)
    norm = torch.nn.BatchNorm3d(48).cuda()
    events = taken_by(lambda: norm(volumes))
    one = volumes.nbytes
    assert sorted(e for e in events if e > 1024) == [one, one, 2 * one]


def means_of_whole_numbers_are_whole_numbers() -> None:
    places, sums = torch.zeros(4, dtype=torch.long, device="cuda"), torch.arange(4, device="cuda")
    ones = torch.ones_like(sums)
    assert sums.scatter_reduce(0, places, ones, "mean").dtype == torch.long
    assert sums.index_reduce(0, places, ones, "mean").dtype == torch.long


if __name__ == "__main__":
    run_programs()
