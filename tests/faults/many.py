"""Many commands in one fork, where each needs no process of its own: readers of records."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import shlex
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence

import attempts
from mutations import WITHOUT_RESULT, Mutation
from sandbox import Sandbox

from vramcast.hardware.calibration import table


def read_mutations(place: Sandbox, cases: Sequence[Mutation]) -> Iterator[attempts.Ending]:
    """How each ended. One that ends the fork or hangs is noted, and the next gets a new fork."""
    done = 0
    while done < len(cases):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _read_all(place, cases[done:], writing)
        os.close(writing)
        hung = False
        with open(reading, "rb") as file:
            while True:
                if not select.select([file], [], [], 3 * attempts.HANG_SECONDS)[0]:
                    os.kill(pid, signal.SIGKILL)
                    hung = True
                line = file.readline()
                if not line:
                    break
                yield attempts.Ending(**json.loads(line))
                done += 1
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        place.renew()
        if done < len(cases):
            died = attempts.Ending(cases[done].reader, None, "", "")
            is_hang = hung or code == -signal.SIGXCPU
            kind = "hangs" if is_hang else "undocumented exit codes"
            died.faults[kind] = f"ended with {code}"
            yield died
            done += 1


def _read_all(place: Sandbox, cases: Sequence[Mutation], writing: int) -> None:
    try:
        os.chdir(place.folder)
        os.environ.update(place.environment)
        attempts.use_warm_servers()
        for case in cases:
            used = resource.getrusage(resource.RUSAGE_SELF)
            limit = int(used.ru_utime + used.ru_stime) + attempts.HANG_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            ending = _read_one(place, case)
            os.write(writing, json.dumps(vars(ending)).encode() + b"\n")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _read_one(place: Sandbox, case: Mutation) -> attempts.Ending:
    path = place.folder / case.file
    good, before = path.read_bytes(), place.state()
    path.write_bytes(case.data)
    if WITHOUT_RESULT.fullmatch(case.file):
        (path.parent / "result.json").unlink()
    table.read.cache_clear()
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["vramcast", *shlex.split(case.reader)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            attempts.vramcast.cli.main.main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        code = 1
        err.write(traceback.format_exc())
    ending = attempts.Ending(case.reader, code, out.getvalue(), err.getvalue())
    attempts.judge(ending, code)
    path.write_bytes(good)
    if left := place.temporary():
        ending.faults["files left"] = ", ".join(left)
    after = place.state()
    if after != before:
        _put_back(place)
    ending.stdout = ""
    return ending


def _put_back(place: Sandbox) -> None:
    """As the template is, and the folder this process stands in stays."""
    for name in os.listdir(place.folder):
        path = place.folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(place.template, place.folder, symlinks=True, dirs_exist_ok=True)
