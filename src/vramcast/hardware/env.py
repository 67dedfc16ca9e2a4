"""`vramcast.env`: what this machine has for training, what that means, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vramcast.hardware.machine import look
from vramcast.hardware.machine_checks import Check, Status, checks
from vramcast.records.base import Record
from vramcast.records.machine import Machine


@dataclass(frozen=True, kw_only=True)
class MachineReport(Record, kind="machine report"):
    facts: Machine
    checks: list[Check]

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "facts": self.facts.to_dict()}

    @property
    def ready(self) -> bool:
        return not any(check.status is Status.PROBLEM for check in self.checks)


def env() -> MachineReport:
    """Is this machine ready to train fast? Asks the driver, and torch in another process."""
    machine = look()
    return MachineReport(facts=machine, checks=checks(machine))
