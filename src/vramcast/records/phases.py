"""The phases of a program, predicted or measured."""

from enum import StrEnum

from vramcast.records.base import Bytes, Count, Part


class PhaseName(StrEnum):
    BUILD = "build"
    TRAIN = "train"
    EVALUATE = "evaluate"
    SAVE = "save"
    OTHER = "other"


class Phase(Part):
    """A phase of a program, with the peak of its memory."""

    name: PhaseName
    num_steps: Count  # training steps, forward passes of an evaluation, or saves
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: Bytes


class PhaseBand(Part):
    """A part of the timeline in which the program stays in one phase."""

    name: PhaseName
    first_event: Count
    last_event: Count


class StepPart(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class StepBand(Part):
    """A part of the timeline within a training step."""

    name: StepPart
    first_event: Count
    last_event: Count
