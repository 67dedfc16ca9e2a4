"""What a program does next with a value it has just read, by the bytecode of its function.

A condition of which one answer leads straight to a `raise` is a check, and holds in a healthy run.
"""

import dis
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from linecache import getline
from types import CodeType, FrameType

MAX_INSTRUCTIONS = 60  # at most so many of a branch are read
CALLS = ("CALL", "PRECALL", "CACHE", "TO_BOOL", "NOP")
STORES = ("STORE_", "POP_TOP", "RETURN_")
ENDING = ("exit", "_exit", "fail", "_fail")  # functions that never return


@cache
def _instructions(code: CodeType) -> tuple[list[dis.Instruction], dict[int, int]]:
    """The instructions of a function, and the index of each by its offset."""
    found = list(dis.get_instructions(code))
    return found, {instruction.offset: index for index, instruction in enumerate(found)}


def _running(frame: FrameType) -> int:
    """The index of the instruction that is running. `f_lasti` may point at one of its caches."""
    offsets = list(_instructions(frame.f_code)[1])
    return bisect_right(offsets, frame.f_lasti) - 1


def _next_instructions(frame: FrameType) -> Iterator[tuple[CodeType, int]]:
    """The instructions from the running one on. Where the function returns the value, its caller's
    instructions follow."""
    current: FrameType | None = frame
    skip = 0
    while current is not None and current.f_lasti >= 0:
        found = _instructions(current.f_code)[0]
        for index in range(_running(current) + skip, len(found)):
            yield current.f_code, index
            if found[index].opname.startswith("RETURN_"):
                break
        current, skip = current.f_back, 1


def answer_that_does_not_raise(frame: FrameType) -> bool | None:
    """The answer to the condition that this frame reads now with which the program does not raise.
    None where neither or both answers raise."""
    answer = True
    for code, index in _next_instructions(frame):
        instruction = _instructions(code)[0][index]
        name = instruction.opname
        if name.startswith("POP_JUMP") and name.endswith(("IF_TRUE", "IF_FALSE")):
            target_raises = _raises(code, _instructions(code)[1][instruction.argval])
            if target_raises == _raises(code, index + 1):
                return None
            jumps_if = name.endswith("IF_TRUE")
            return (jumps_if != target_raises) == answer
        if name == "UNARY_NOT":
            answer = not answer
        elif not name.startswith((*CALLS, "RETURN_")):
            return None
    return None


def answer_that_goes_on(frame: FrameType) -> bool | None:
    """The answer to the `if` that this frame reads now with which it stays in the loop or function.
    None where the line is no `if`."""
    line, following = (getline(frame.f_code.co_filename, frame.f_lineno + n) for n in (0, 1))
    if not line.lstrip().startswith("if "):
        return None
    return not following.lstrip().startswith(("break", "return"))


def _raises(code: CodeType, index: int, most_decisions: int = 3) -> bool:
    """Whether the code from here on raises or exits before it returns, on every path."""
    found, index_at = _instructions(code)
    for _ in range(MAX_INSTRUCTIONS):
        if index >= len(found):
            return False
        instruction = found[index]
        name = instruction.opname
        is_exit = name.startswith("LOAD_") and instruction.argval in ENDING
        if name in ("RAISE_VARARGS", "LOAD_ASSERTION_ERROR") or is_exit:
            return True
        if name == "JUMP_FORWARD":
            index = index_at[instruction.argval]
        elif name.startswith("POP_JUMP") and most_decisions:
            ways = index + 1, index_at[instruction.argval]
            return all(_raises(code, way, most_decisions - 1) for way in ways)
        elif "JUMP" in name or name.startswith(("RETURN_", "FOR_ITER", "YIELD")):
            return False
        else:
            index += 1
    return False


def is_compared(frame: FrameType) -> bool:
    """Whether the number that this frame is reading is used in a condition at once."""
    for code, index in _next_instructions(frame):
        name = _instructions(code)[0][index].opname
        if name.startswith(("COMPARE_OP", "POP_JUMP")):
            return True
        if name.startswith(STORES):
            return False
    return False


@cache
def _loops(code: CodeType) -> list[tuple[int, int, bool]]:
    """Where the loops of a function begin and end, and whether each is a `while`."""
    found, index_at = _instructions(code)
    return [
        (jump.argval, jump.offset, found[index_at[jump.argval]].opname != "FOR_ITER")
        for jump in found
        if "JUMP" in jump.opname and isinstance(jump.argval, int) and jump.argval <= jump.offset
    ]


def is_in_while_loop(frame: FrameType) -> bool:
    """Whether the innermost loop around the running instruction is a `while`. Where the function
    has no loop, its callers are looked at."""
    current: FrameType | None = frame
    while current is not None:
        at = current.f_lasti
        around = [loop for loop in _loops(current.f_code) if loop[0] <= at <= loop[1]]
        if around:
            return max(around)[2]
        current = current.f_back
    return False
