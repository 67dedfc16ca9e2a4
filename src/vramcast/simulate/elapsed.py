"""The predicted time on the host and on the GPU while a program is simulated.

It is needed because some memory is given back after a certain time.
"""

from collections import deque

from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.pipeline import SYNCHRONIZE, host_seconds, waits
from vramcast.forecast.timing.rates import rates_here
from vramcast.hardware.gpus import Gpu
from vramcast.simulate.device import Device
from vramcast.tracing.work import CAPTURED, FORWARD, NO_KERNEL, REPLAYED

# A kernel's code is loaded when it is first launched: some 70 took 0.7 to 1.3 s on an H200.
LOADING_SECONDS = 0.01
FURTHER = 1.001  # a smaller lead is a rounding error
# The host can be 1,024 launches ahead of the GPU; events, fills and operators with several kernels
# count too, so fewer operators fit.
OPERATORS_AHEAD = 850


class Elapsed:
    def __init__(self, gpu: Gpu, device: Device) -> None:
        self._gpu, self._device = gpu, device
        self.clear()

    def clear(self) -> None:
        self.host_seconds = self.device_seconds = 0.0
        self._num_seen = 0
        self._ends = deque([0.0] * OPERATORS_AHEAD, maxlen=OPERATORS_AHEAD)
        self._known: dict[bytes, tuple[float, float, bool, str]] = {}
        self._loaded: set[str] = set()
        self._unfinished: deque[float] = deque()
        self._num_finished = 0
        self._num_calls = 0
        self._ahead = 0.0

    def num_finished_launches(self, num_waited_for: int) -> int:
        """How many launches the GPU has finished at the host's present time, after the host has
        waited for `num_waited_for` of them."""
        self.look()
        index = num_waited_for - self._num_finished - 1
        if 0 <= index < len(self._unfinished):
            self.host_seconds = max(self.host_seconds, self._unfinished[index])
        while self._unfinished and self._unfinished[0] <= self.host_seconds:
            self._unfinished.popleft()
            self._num_finished += 1
        return self._num_finished

    def has_got_ahead(self) -> bool:
        """Whether the host is further ahead of the GPU than when this was last asked."""
        self.look()
        before, self._ahead = self._ahead, self.device_seconds - self.host_seconds
        return self._ahead > before * FURTHER

    def look(self) -> None:
        """Adds the time of the work that was recorded since the last call."""
        if self._device.library.vramcast_num_work() < self._num_seen:
            self.clear()  # another recording has begun
        done = self._device.work(self._num_seen)
        self._num_seen += len(done)
        self.host_seconds += self._python_seconds()
        for work in done:
            if work.operator_name < 0:
                continue
            key = bytes(work)
            if key not in self._known:
                self._known[key] = self._times(work)
            on_host, on_device, must_wait, kernel = self._known[key]
            self.host_seconds += on_host
            if on_device:
                if kernel not in self._loaded:
                    self._loaded.add(kernel)
                    self.host_seconds += LOADING_SECONDS
                self.host_seconds = max(self.host_seconds, self._ends[0])
                self.device_seconds = max(self.device_seconds, self.host_seconds) + on_device
                self._ends.append(self.device_seconds)
            if work.access != NO_KERNEL and work.phase not in (REPLAYED, CAPTURED):
                self._unfinished.append(self.device_seconds)
            if must_wait:
                self.wait()

    def _python_seconds(self) -> float:
        """The time of the Python functions that the program has called since the last look. The
        count may begin again with a step."""
        count = int(self._device.library.vramcast_num_python_calls())
        new = count - self._num_calls if count >= self._num_calls else count
        self._num_calls = count
        return new * rates_here().host.get("python_call", 0.0)

    def wait(self) -> None:
        self.host_seconds = max(self.host_seconds, self.device_seconds)

    def _times(self, done: object) -> tuple[float, float, bool, str]:
        """Seconds on the host, seconds on the GPU, whether the host waits, and the kernel's name.
        `add` and `add_` have the same kernel."""
        work, rates = self._device.operator_work(done), rates_here()  # type: ignore[arg-type]
        kernel = work.operator.rstrip("_")
        if work.phase == CAPTURED:  # the GPU does nothing
            return host_seconds(work._replace(phase=FORWARD), rates), 0.0, False, kernel
        on_device = kernel_time(work, self._gpu, rates).seconds
        # num_finished_launches tells for what a synchronization waits
        must_wait = work.operator != SYNCHRONIZE and waits(work)
        return host_seconds(work, rates), on_device, must_wait, kernel
