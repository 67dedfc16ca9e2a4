"""Memory through the step with the peak, and the tensors that are alive there."""

from dataclasses import field

from vramcast.records.base import Bytes, Count, Part, require


class LargeTensor(Part):
    num_bytes: Bytes
    category: str
    name: str
    shape: list[int]
    dtype: str
    operator: str
    module: str
    source: str


class StepAllocation(Part):
    """A large allocation that is alive in the step. Events are counted in the whole run."""

    tensor: Count  # its index in the step's tensors
    num_bytes: Bytes  # the size of its block
    made_event: Count
    freed_event: Count | None  # None: never


class StepMemory(Part):
    """Memory through a step, thinned to some hundred events; the peak is among them."""

    phase: str  # "step 2", or "build"
    num_events: Count  # in the whole step
    # "event" (counted in the step), "allocated", "reserved" if known, then categories.
    columns: list[str]
    points: list[list[int]]
    peak_point: int  # where most is allocated
    tensors: list[LargeTensor]
    # For every point: [index of a tensor, 1 if it was allocated or 0 if freed], or [].
    changes: list[list[int]]
    # In the order in which they were made; empty in older records.
    allocations: list[StepAllocation] = field(default_factory=list)
    # All other allocations: "event" (counted in the step), and the bytes of each category.
    rest: dict[str, list[Count]] = field(default_factory=dict)
    first_event: Count = 0  # the step's first event in the whole run

    def check(self) -> None:
        require(self.columns[:2] == ["event", "allocated"], "step_memory.columns are out of order")
        is_table = all(len(point) == len(self.columns) for point in self.points)
        require(is_table, "step_memory.points do not have a number for each column")
        num_points, changed = len(self.points), list(filter(None, self.changes))
        require(0 <= self.peak_point < num_points, "step_memory.peak_point is none of the points")
        names_tensors = all(len(one) == 2 and 0 <= one[0] < len(self.tensors) for one in changed)
        require(
            len(self.changes) == num_points and names_tensors,
            "step_memory.changes do not name a tensor for each point",
        )
        is_known = all(one.tensor < len(self.tensors) for one in self.allocations)
        require(is_known, "step_memory.allocations name a tensor that is not there")
        is_whole = len({len(column) for column in self.rest.values()}) < 2
        require(is_whole, "step_memory.rest does not have a number for each event")


class MemorySegment(Part):
    """A piece of memory that the allocator got from the driver."""

    num_bytes: Bytes
    # category and bytes of each block in order; the category is "" for a free one
    blocks: list[tuple[str, Bytes]]


class SegmentMap(Part):
    """The segments when most is allocated, or when an allocation fails."""

    segments: list[MemorySegment]  # the largest
    num_segments: Count  # this and the following count all segments
    free_bytes: Bytes
    num_free: Count
    largest_free_bytes: Bytes


class AliveGroup(Part):
    """Tensors that are alive at the peak."""

    category: str
    module: str  # its name as deep as there is room for; "" if unknown
    num_bytes: Bytes
    num_tensors: Count


class AlivePlace(Part):
    """Tensors that are alive at the peak, by the line that made them.

    Numbers in a module's name are `*`: what is true of one block is true of the others.
    """

    category: str
    module: str
    num_modules: Count  # how many modules `module` stands for
    source: str  # the line; "" if unknown
    num_bytes: Bytes
    num_tensors: Count
