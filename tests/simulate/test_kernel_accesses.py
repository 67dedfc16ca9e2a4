"""How a fused kernel walks through memory is read from its source."""

from __future__ import annotations

import pytest

from vramcast.simulate.kernel_accesses import accesses_of

MASK = "r0_mask & xmask, other=0.0)"
ROW = f"tmp0 = tl.load(in_ptr0 + (r0_1 + 384*x0), {MASK}"
WEIGHT = f"tmp1 = tl.load(in_ptr1 + (r0_1), {MASK}"
COLUMN = f"tmp2 = tl.load(in_ptr2 + (x2 + 196*r0_1 + 75264*x3), {MASK}"
TURNED = f"tmp2 = tl.load(in_ptr2 + (1572864 + x0 + ((-1536)*r0_1) + 1572864*x1), {MASK}"
PLACES = f"tmp3 = tl.load(in_ptr3 + (56*x0 + ((((r0_1 + 784*x1) // 56) % 56))), {MASK}"
SUM = "tl.store(out_ptr0 + (x0), tmp5, xmask)"


@pytest.mark.parametrize(
    ("lines", "is_mixed"),
    [
        ([ROW, WEIGHT, SUM], False),
        ([ROW, WEIGHT, COLUMN], True),
        ([COLUMN, SUM], False),
        ([COLUMN, TURNED], False),
        ([COLUMN, PLACES], False),
    ],
)
def test_a_reduction_that_reads_along_and_across_rows_moves_more(
    lines: list[str], is_mixed: bool
) -> None:
    found = accesses_of("\n".join(lines))
    assert found.is_mixed is is_mixed
    assert found.more_bytes(1000, lambda _: (0, 4)) == (1000 if is_mixed else 0)


def test_short_runs_move_whole_sectors() -> None:
    """Two of 16 bits follow each other, in a sector of 32 bytes."""
    index = "r0_2 + 2*x0 + 64*r0_3 + 1048576*x1"
    source = f"r0_2 = (r0_index % 2)\ntmp0 = tl.load(in_ptr0 + ({index}), {MASK}"
    found = accesses_of(source)
    assert found.runs == {"in_ptr0": 2}
    assert found.more_bytes(0, lambda _: (100, 2)) == 100 * (16 - 2)
    assert accesses_of(source.replace("% 2", "% 64")).more_bytes(0, lambda _: (100, 2)) == 0


def test_rows_that_are_named_are_read_each_time_unless_the_cache_holds_them() -> None:
    """A thousand elements are gone through, of a table of a hundred."""
    found = accesses_of("tmp1 = tl.load(in_ptr1 + (x0 + 192*tmp0), xmask)")
    assert found.gathered == {"in_ptr1"}
    assert found.more_bytes(0, lambda _: (100, 4), 1000, cache_bytes=0) == 900 * 4
    assert found.more_bytes(0, lambda _: (100, 4), 1000, cache_bytes=1 << 20) == 0
    assert found.more_bytes(0, lambda _: (2000, 4), 1000, cache_bytes=0) == 0


@pytest.mark.parametrize(
    ("ranges", "run"),
    [("x0 = (xindex % 192)", 192), ("x0 = xindex", "xnumel"), ("x0 = xindex // 192", 1)],
)
@pytest.mark.parametrize(
    "index", ["x0 + 192*tmp10", "tl.broadcast_to(x0 + ks1*tmp10, [YBLOCK, XBLOCK])"]
)
def test_additions_to_rows_go_to_neighbours(ranges: str, run: int | str, index: str) -> None:
    line = f"tl.atomic_add(out_ptr1 + ({index}), tmp32, xmask, sem='relaxed')"
    assert accesses_of(f"{ranges}\n    {line}").added_runs == {"out_ptr1": run}
