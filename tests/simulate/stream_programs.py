"""What programs do with streams and threads of a GPU: run by test_device_programs.py.

python tests/simulate/stream_programs.py
"""

from __future__ import annotations

from program_device import BEFORE, KIB, SESSION, run_programs, taken_by

# isort: split
# the device is loaded before torch
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from vramcast.hardware.calibration.table import minor_version
from vramcast.simulate.workspaces import GIVEN_BACK_SINCE
from vramcast.tracing.trace import split_holds

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


if __name__ == "__main__":
    run_programs()
