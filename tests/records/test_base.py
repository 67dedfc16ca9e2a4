"""What reading a record does whoever reads it."""

from __future__ import annotations

import subprocess
import sys

MANY_FIRST_READS = """
import sys, threading
from vramcast.records.base import Part, typed

sys.setswitchinterval(1e-6)
inner = {f"field_{number}": int for number in range(12)}
values = dict.fromkeys(inner, 1)
for _ in range(300):
    part = type("Inner", (Part,), {"__annotations__": inner})
    whole = type("Outer", (Part,), {"__annotations__": {"one": part, "many": list[part]}})
    gate, read = threading.Barrier(3), []

    def first_read():
        gate.wait()
        read.append(typed({"one": values, "many": [values]}, whole))

    threads = [threading.Thread(target=first_read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == 3 and read[0] == read[1] == read[2]
"""


def test_several_threads_may_read_a_kind_of_record_for_the_first_time() -> None:
    """In a process of its own: where they may not, it crashes."""
    done = subprocess.run(
        [sys.executable, "-c", MANY_FIRST_READS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
