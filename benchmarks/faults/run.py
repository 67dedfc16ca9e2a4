"""Whether a trial that breaks the GPU, memory or time harms the next one: probe, tune and bench.

    python benchmarks/faults/run.py OUT [--device cpu]

Before and after every fault a sound trial is run by the same server of processes: its losses and
its memory must be the same, the GPU's memory must be free again, and no process may be left. Writes
OUT/faults.json and prints a table. Exits with 1 where something was harmed.
"""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import workloads

import vramcast
from vramcast.hardware import nvml
from vramcast.hardware.environment import describe
from vramcast.probing.manager import Prober
from vramcast.probing.trial import Trial

WORKLOADS = str(Path(workloads.__file__).resolve())
# sound trials end within seconds
TIMEOUT_SECONDS = 60.0
# of the GPU's memory: what the driver keeps for itself changes a little
MAX_KEPT_BYTES = 64 << 20
OUT_OF_MEMORY = ("out of memory", "fills the card")
ENDLESS = ("endless kernel", "endless step")
PROTOCOL = """\
name = "faults-1"
batch_size = 4
seq_len = 16
steps = 20
last_steps = 10
lr = 0.01
optimizer = "adamw"
precision = "fp32"
"""


def expected(fault: str) -> str:
    if fault in OUT_OF_MEMORY:
        return "out_of_memory"
    return "timeout" if fault in ENDLESS else "crashed"


def used_bytes(device: str) -> int:
    """Of the GPU, by all processes; it takes the driver a moment to give memory back."""
    if device == "cpu":
        return 0
    uuid = nvml.gpu_states()[0].uuid
    time.sleep(1.0)
    return nvml.UsedMemory().of_device(uuid)


def sound_run(prober: Prober, device: str) -> tuple[Any, ...]:
    """What must be the same whenever it is run."""
    run = prober.run(_trial(device))
    return run.outcome, run.losses, run.peak_allocated_bytes


def _trial(device: str, timeout_seconds: float = TIMEOUT_SECONDS, **knobs: str) -> Trial:
    return Trial(
        workload=f"{WORKLOADS}:build",
        knobs=knobs,
        device=device,
        measure_steps=5,
        timeout_seconds=timeout_seconds,
    )


def probe_faults(
    device: str, faults: tuple[str, ...] = workloads.FAULTS, timeout_seconds: float = 20.0
) -> list[dict[str, Any]]:
    """One row a fault; `harm` is empty where the next trial was not harmed."""
    rows = []
    with Prober() as prober:
        before, used_before = sound_run(prober, device), used_bytes(device)
        for fault in faults:
            limit = timeout_seconds if fault in ENDLESS else TIMEOUT_SECONDS
            run = prober.run(_trial(device, limit, fault=fault))
            harm = []
            if run.outcome != expected(fault):
                harm.append(f"it was called {run.outcome}: {(run.error or '')[:200]}")
            if used_bytes(device) > used_before + MAX_KEPT_BYTES:
                harm.append("memory of the GPU is not free again")
            if (after := sound_run(prober, device)) != before:
                harm.append(f"the next trial differs: {after} and not {before}")
            rows.append({"command": "probe", "fault": fault, "outcome": run.outcome, "harm": harm})
    return rows


def tune_fault(device: str, out: Path, fault: str) -> dict[str, Any]:
    """A setting that breaks: it is not taken, and those after it are tried."""
    result = vramcast.tune(
        f"{WORKLOADS}:build",
        out=out / f"tune-{fault.replace(' ', '-')}",
        device=device,
        budget="10min",
        only="chunked-loss,optimizer-in-backward",
        outlook=False,
        force=True,
        fault=fault,
        only_chunked=True,
    )
    harm = []
    if result.configuration["knobs"].get("loss_chunks", 1) != 1:
        harm.append("the setting that breaks was taken")
    verdicts = {row.name: row.verdict for row in result.rows}
    if len(verdicts) != 2 or "not applicable" in verdicts.values():
        harm.append(f"not both settings were tried: {verdicts}")
    outcome = ", ".join(f"{name} {verdict}" for name, verdict in verdicts.items())
    return {"command": "tune", "fault": fault, "outcome": outcome, "harm": harm}


def bench_fault(device: str, out: Path, fault: str) -> dict[str, Any]:
    """Between two sound trials."""
    folder = out / f"bench-{fault.replace(' ', '-')}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "protocol.toml").write_text(PROTOCOL)
    words = [f"{WORKLOADS}:model", f"{WORKLOADS}:model", f"fault={fault}"]
    options: dict[str, Any] = {"protocol": str(folder / "protocol.toml"), "device": device}
    first, broken, last = vramcast.bench(
        [*words, f"{WORKLOADS}:model", "fault="], out=folder / "runs", force=True, **options
    )
    harm = []
    if broken.outcome != expected(fault):
        harm.append(f"it was called {broken.outcome}: {(broken.error or '')[:200]}")
    if (last.outcome, last.losses) != (first.outcome, first.losses) or first.outcome != "ok":
        harm.append("the trial after it differs from the one before")
    return {"command": "bench", "fault": fault, "outcome": broken.outcome, "harm": harm}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    rows = probe_faults(asked.device)
    # bench stops a trial that never ends after half an hour: too long for this
    finite = [fault for fault in workloads.FAULTS if fault not in ENDLESS]
    rows += [bench_fault(asked.device, asked.out, fault) for fault in finite]
    rows += [tune_fault(asked.device, asked.out, fault) for fault in ("trap", "out of memory")]
    found = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "command": f"benchmarks/faults/run.py --device {asked.device}",
        "machine": describe(Path.cwd()),
        "gpu": nvml.gpu_states()[0].name if asked.device == "cuda" else None,
        "rows": rows,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "faults.json").write_text(json.dumps(found, indent=2, default=str) + "\n")
    print("| command | fault | outcome | harm to the next trial |\n|---|---|---|---|")
    for row in rows:
        harm = "; ".join(row["harm"]) or "none"
        print(f"| {row['command']} | {row['fault']} | {row['outcome']} | {harm} |")
    return int(any(row["harm"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
