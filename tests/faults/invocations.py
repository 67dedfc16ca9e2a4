"""Wrong invocations of every command, drawn from the tree of commands itself.

A command or option that is new is drawn too, without a change here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import sandbox
import typer

from vramcast.cli.commands import app

# What each command is asked when nothing is wrong. A command that is not here gets GOOD_WORKLOAD
# for every argument that it needs.
GOOD_WORKLOAD = "work.py:good"
GOOD: dict[str, list[str]] = {
    "predict": ["work.py:good", "batch_size=4"],
    "max-batch": ["work.py:good", "--memory", "1GiB", "--max", "4"],
    "plan": ["work.py:sequence", "--seq-lens", "8,16", "--gpu", "rtx-4090", "--out", "new"],
    "advise": ["work.py:good", "batch_size=4", "--memory", "1GiB"],
    "probe": [*sandbox.PROBE[1:-1], "new"],
    "fit": ["runs.csv"],
    "diff": ["a/trace.json", "b/trace.json"],
    "tune": [*sandbox.TUNE[1:-3], "1s", "--out", "new"],
    "bench": [*sandbox.BENCH[1:-1], "new"],
    "compare": ["bench"],
    "report": ["prediction.json", "-o", "page.html"],
    "accuracy": sandbox.ACCURACY[1:],
    "calibrate": ["--host", "--out", "new"],
    "zoo": ["e5", "--params", "50M"],
}
# Commands whose workload may be the line a program is started with.
LAUNCHING = ("predict", "max-batch", "plan", "advise")
LAUNCHES = [
    "python train.py",
    "python train.py --steps 2",
    "python -m train --steps 2",
    "python train.py --fail",
    "python train.py --leave 3",
    "python train.py --kill",
    "python train.py --no-gpu",
    "python absent.py",
    "python -c pass",
    "python",
    "python work.py",
    "python syntax.py",
    "python import_kill.py",
    "python import_exit.py",
    "python import_raise.py",
    "python -m absent",
    "python3 -u train.py",
    "torchrun --nproc-per-node 2 train.py",
    "torchrun train.py",
    "accelerate launch train.py",
    "deepspeed train.py",
    "bash -c true",
    "sh train.sh",
    "sleep 600",
    "env X=1 python train.py",
    "X=1 python train.py",
    "",
]
NUMBERS = sandbox.words(
    "0 -1 1 3 nan inf -inf 1e308 1e999 -0.0 0x10 1_000 9999999999999999999999 1,5 1.5 ١٢ ½ "
    "1e-320 0.99999 1.00001 true None"
) + ["", " ", "9" * 5000, "-" + "9" * 400, "1e" + "9" * 50]
SIZES = sandbox.words(
    "1GiB -1GiB 0GiB 1e400GiB 24gib 1 GiB nanGiB 99999999YiB 1KB 24GiB24GiB GiB 0.0000001B"
)
LISTS = sandbox.words(
    "1-64 64-1 1-999999999999 8,8,8 1-4:0 1-4:-1 , ,, 1- -4 1-4:4:4 8,16 16,8 0 1,2,3 "
    "dim=8 dim=8,0 dim=,, rank=4,8 =1 a=b=c"
) + [",".join(map(str, range(5000)))]
FILES = sandbox.words(
    "absent absent.py absent.py:good work.py work.py: :good work.py:absent work.py:good:good "
    "syntax.py:good binary binary:good empty empty:good import_exit.py:good import_raise.py:good "
    "import_loop.py:good import_missing.py:good import_bytes.py:good import_empty.py:good "
    "import_kill.py:good . .. / bench probe tune plan a a/trace.json b bench/x runs.csv tiny.toml "
    "prediction.json curve.json max-batch.json fit.json compare.json config.json "
    "probe/metrics.json plan/plan.json tuned.json h200 accuracy accuracy/rows.jsonl "
    "work.py/below cache/new text.bin "
    "/dev/null /dev/zero /dev/full /dev/stdin /proc/self/mem /proc/1/environ /nonexistent/x "
    "~/x .hidden -- - -x --x os:system os.path:join json:loads vramcast:predict torch:zeros "
    "torch.nn:Linear gpt2-124m e5-50m gpt2 meta-llama/Meta-Llama-3-8B http://example.invalid/x.py "
    "page.html page.png page.xyz new/deep/er page.svg hostile.py:no_function hostile.py:loads"
)
TEXTS = [
    "",
    " ",
    "\n",
    "x" * 300,
    "x" * 100_000,
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "a\rb",
    "a\x9bb",
    "é漢字🙂",
    "\u202eabc",
    "\udcff\udc80",
    "$(id)",
    "`id`",
    "'\"\\",
    "%s%n{0}{x}",
    "[bold]x[/bold]",
    "[/]",
    "<script>",
    "../../../x",
    "a" * 250 + "/b",
    "COM1",
    "null",
    "[]",
    "{}",
    "max_split_size_mb:1,max_split_size_mb:0",
    "expandable_segments:maybe",
    "garbage_collection_threshold:2",
    "roundup_power2_divisions:[256:1,",
    "rtx-4090,h200",
    "h200",
    "t4",
    "cpu",
    "cuda:99",
    "cuda",
    "md",
    "terminal",
    "constant,constant",
    "x=__import__('os').system('id')",
    "x=1/0",
    "x=batch_size**batch_size**batch_size**9",
    "x=" + "(" * 5000,
    "x=" + "-" * 5000 + "1",
    "x=9**9**9",
    "constant,per_sample,x",
]
KNOBS = sandbox.words(
    "batch_size=0 batch_size=-1 batch_size=nan batch_size= batch_size=1e9 batch_size=many =3 = == "
    "batch_size=1=2 batchsize=3 batch_size scale=inf scale=nan scale=x seq_len=0 "
    "self=1 __class__=1 batch_size=[1] batch_size={} scale=true width=9 dim=1 depth=0 rank=-1"
) + ["batch_size=" + "9" * 5000, "\x1b[31m=1", "batch_size=\x1b[31m", "é=1"]
FOR_TEXT = [TEXTS, FILES, FILES, NUMBERS, SIZES, LISTS, KNOBS]
# they ask for a network: what becomes of them depends on it
LEFT_OUT_VALUES = {"--ray": ["", "auto:x", "\x1b[31m", "host:99999999", "host:port"]}


def commands() -> dict[tuple[str, ...], Any]:
    """Every command with its words, those in groups too."""

    def below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        if hasattr(command, "commands"):
            for name, one in command.commands.items():
                yield from below((*words, name), one)
        else:
            yield words, command

    return dict(below((), typer.main.get_command(app)))


def good_invocation(words: tuple[str, ...], command: Any) -> list[str]:
    if words[-1] in GOOD:
        return [*words, *GOOD[words[-1]]]
    needed = [one for one in command.params if one.param_type_name == "argument" and one.required]
    return [*words, *[GOOD_WORKLOAD for _ in needed]]


def wrong_invocations(seed: int, count: int) -> Iterator[list[str]]:
    """All commands in turn; every option of a command is drawn before one is drawn again."""
    draw = random.Random(seed)
    known = commands()
    options = {words: list[Any]() for words in known}
    for number in range(count):
        words = list(known)[number % len(known)]
        command = known[words]
        left = options[words]
        if not left:
            left += [one for one in command.params if one.param_type_name == "option"] or [None]
            draw.shuffle(left)
        arguments = good_invocation(words, command)
        if words[-1] in LAUNCHING and draw.random() < 0.3:
            yield [*arguments[:1], *_launch_line(draw, arguments)]
            continue
        for change in draw.sample(CHANGES, draw.choice((1, 1, 2, 3))):
            arguments = change(draw, arguments, command, left)
        if left and draw.random() < 0.7:
            arguments = _with_option(draw, arguments, command, left)
        yield arguments
    return


def _launch_line(draw: random.Random, arguments: list[str]) -> list[str]:
    """Options, then the line a program is started with, with something wrong in it."""
    line = draw.choice(LAUNCHES).split()
    for _ in range(draw.choice((0, 1, 1, 2))):
        at = draw.randrange(len(line) + 1)
        line[at:at] = [draw.choice(draw.choice((FILES, TEXTS, NUMBERS, KNOBS)))]
    options = [word for word in arguments[2:] if draw.random() < 0.8]
    return [*options, "--", *line]


def _with_option(draw: random.Random, arguments: list[str], command: Any, left: Any) -> list[str]:
    """One more option, or another value for it; a flag is now and then given a value."""
    option = left.pop() if left else None
    if option is None:
        return arguments
    name = draw.choice([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return [*arguments, name if draw.random() < 0.9 else f"{name}=1"]
    value = _value(draw, name, option)
    if name in arguments and draw.random() < 0.8:
        at = arguments.index(name)
        return [*arguments[: at + 1], value, *arguments[at + 2 :]]
    if draw.random() < 0.2 and name.startswith("--"):
        return [*arguments, f"{name}={value}"]
    return [*arguments, name, value]


def _value(draw: random.Random, name: str, option: Any) -> str:
    if name in LEFT_OUT_VALUES:
        return draw.choice(LEFT_OUT_VALUES[name])
    # typer has renamed it
    kind = getattr(option, "type_descriptor", None) or option.type
    is_number = getattr(kind, "annotation", None) in (int, float) or str(kind) in ("INT", "FLOAT")
    lists = [NUMBERS] if is_number and draw.random() < 0.95 else FOR_TEXT
    return draw.choice(draw.choice(lists))


def _another_argument(
    draw: random.Random, arguments: list[str], command: Any, left: Any
) -> list[str]:
    """In place of the first argument, which is a workload or a record for most commands."""
    wrong = draw.choice([*FILES, *FILES, *TEXTS])
    at = next((at for at, word in enumerate(arguments) if at and not word.startswith("-")), None)
    return [*arguments, wrong] if at is None else [*arguments[:at], wrong, *arguments[at + 1 :]]


def _more_arguments(draw: random.Random, arguments: list[str], *_: Any) -> list[str]:
    at = draw.randrange(1, len(arguments) + 1)
    more = [draw.choice(draw.choice((KNOBS, FILES, TEXTS))) for _ in range(draw.choice((1, 1, 3)))]
    return [*arguments[:at], *more, *arguments[at:]]


def _fewer_arguments(draw: random.Random, arguments: list[str], *_: Any) -> list[str]:
    if len(arguments) < 2:
        return arguments
    at = draw.randrange(1, len(arguments))
    return [*arguments[:at], *arguments[at + 1 :]]


def _unknown_option(draw: random.Random, arguments: list[str], *_: Any) -> list[str]:
    return [
        *arguments,
        draw.choice(["--no-such", "--gpus", "-q", "---", "--\x1b[31m", "-é", "--="]),
    ]


def _all_flags(draw: random.Random, arguments: list[str], command: Any, left: Any) -> list[str]:
    """Contradictions: --json with --open, --host with a workload, --force with nothing there."""
    flags = [one for one in command.params if getattr(one, "is_flag", False)]
    return [*arguments, *[draw.choice(one.opts) for one in flags if one.name != "help"]]


def _twice(draw: random.Random, arguments: list[str], *_: Any) -> list[str]:
    return [*arguments, *arguments[1:]]


def _no_value(draw: random.Random, arguments: list[str], command: Any, left: Any) -> list[str]:
    options = [one for one in command.params if one.param_type_name == "option"]
    return [*arguments, draw.choice(options).opts[0]] if options else arguments


CHANGES = [
    *[_another_argument] * 3,
    *[_more_arguments] * 2,
    *[_with_option] * 6,
    _fewer_arguments,
    _unknown_option,
    _all_flags,
    _twice,
    _no_value,
]


def hostile_invocations(builds: list[str]) -> Iterator[list[str]]:
    """Everything that user code can do, in every command that runs it."""
    for build in builds:
        workload = f"hostile.py:{build}"
        yield ["predict", workload, "--timeout", "5"]
        yield ["max-batch", workload, "--memory", "1GiB", "--max", "2", "--timeout", "5"]
        yield ["plan", workload, "--seq-lens", "8", "--gpu", "t4", "--timeout", "5"]
        probe = ["--device", "cpu", "--steps", "2", "--warmup", "0", "--timeout", "5"]
        yield ["probe", workload, *probe, "--out", "new"]
        yield ["bench", workload, *GOOD["bench"][4:]]
