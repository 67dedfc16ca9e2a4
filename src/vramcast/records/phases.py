"""The parts of what a program does, predicted or measured."""

from enum import StrEnum

from vramcast.records.base import Bytes, Count, Part


class PhaseName(StrEnum):
    BUILD = "build"
    TRAIN = "train"
    EVALUATE = "evaluate"
    SAVE = "save"
    OTHER = "other"


class Phase(Part):
    """A part of what a program does, with the memory at its own peak."""

    name: PhaseName
    num_steps: Count  # training steps, forward passes of an evaluation, or saves
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: Bytes


class PhaseBand(Part):
    """A stretch of the timeline in which the program stays in one phase."""

    name: PhaseName
    first_event: Count
    last_event: Count


class StepPart(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class StepBand(Part):
    """A stretch of the timeline within a training step."""

    name: StepPart
    first_event: Count
    last_event: Count
