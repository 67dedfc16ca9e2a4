"""What every command's --help teaches besides its options: the question it answers, an example, what to do next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lesson:
    question: str  # in the list of commands: one line of 80 columns
    examples: tuple[str, ...]
    after: str

    @property
    def epilog(self) -> str:
        examples = "\n".join(f"  {example}" for example in self.examples)
        return f"\b\n{'Example' if len(self.examples) == 1 else 'Examples'}:\n{examples}\n\nNext: {self.after}"


START = """\b
Start here:
  vramcast predict gpt2-124m batch_size=8 --gpu rtx-4090   a model of the zoo
  vramcast predict train.py:build --gpu rtx-4090           your own function
  vramcast COMMAND --help                                  an example of each

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a valid no (it does not fit, nothing helped, not distinguishable), 130 interrupted."""

LESSONS = {
    "predict": Lesson(
        "Will it fit, what takes the memory, how fast? No GPU needed.",
        (
            "vramcast predict train.py:build batch_size=8 --gpu rtx-4090",
            "vramcast predict gpt2-124m --batch-sizes 4-32:4 --memory 24GiB",
        ),
        "vramcast max-batch finds the largest batch; --json > fits.json and vramcast report fits.json draw it; vramcast probe measures it.",
    ),
    "max-batch": Lesson(
        "What is the largest batch that fits?",
        ("vramcast max-batch train.py:build --gpu rtx-4090 --global-batch 256",),
        "train with the recommended size; vramcast plan does the same for every sequence length.",
    ),
    "plan": Lesson(
        "Which batch for every sequence length, and how long will it take?",
        ("vramcast plan train.py:build --seq-lens 128,512 --gpu rtx-4090 --out runs/plan",),
        "curriculum-GPU.yaml in the folder is for your training loop; vramcast report runs/plan draws it.",
    ),
    "probe": Lesson(
        "What does it really take here, and was the run sound?",
        (
            "vramcast probe train.py:build batch_size=8",
            "vramcast probe train.py:build batch_size=8 --device cpu --steps 3",
        ),
        "vramcast report RUN shows the folder; vramcast fit RUN... makes a law of several; --trace and vramcast diff compare it with a "
        "prediction, allocation by allocation.",
    ),
    "fit": Lesson(
        "Which law do measured runs follow, and how wrong is it?",
        (
            'vramcast fit runs.csv --term "ring=batch_size*seq_len*width*2"',
            "vramcast fit runs/probe-a runs/probe-b runs/probe-c",
        ),
        "--at batch_size=24 asks the law; --json > law.json and vramcast report law.json draw it.",
    ),
    "diff": Lesson(
        "Where do two memory traces part?",
        ("vramcast diff predicted/trace.json measured/trace.json",),
        "the first difference names operator, module and source line; docs/how-it-works.md says how to go on from there.",
    ),
    "tune": Lesson(
        "Which settings make it fastest, which fail, and why?",
        ("vramcast tune train.py:build batch_size=8 --budget 20min --out runs/tune",),
        "vramcast probe train.py:build --config runs/tune/final.json runs what came out; vramcast report runs/tune draws it.",
    ),
    "env": Lesson(
        "Is this machine ready to train fast?",
        ("vramcast env",),
        "do what it advises, then vramcast tune; where there is no GPU, vramcast predict.",
    ),
    "bench": Lesson(
        "How well do models learn under one fixed protocol?",
        ("vramcast bench e1-50m mamba2-50m --seeds 1,2,3 --out runs/first",),
        "vramcast compare runs/first says which is better; vramcast report runs/first draws the losses.",
    ),
    "compare": Lesson(
        "Which model is better, and is the difference real?",
        ("vramcast compare runs/first",),
        "where it cannot tell, train with more seeds: vramcast bench ... --seeds 1,2,3,4,5 into the same folder.",
    ),
    "report": Lesson(
        "Show me: one page, made from records alone.",
        (
            "vramcast predict train.py:build batch_size=8 --gpu rtx-4090 --json > fits.json",
            "vramcast report fits.json --open             memory through the step",
            "vramcast report fits.json runs/probe-train   what was measured laid over it",
            "vramcast report runs/bench-first --format md tables for a README or an issue",
        ),
        "the page is one file without a network: send it; --figures DIR has the charts for a paper.",
    ),
    "accuracy": Lesson(
        "How good are the predictions?",
        ("vramcast accuracy --against benchmarks/accuracy/h200-torch-2.11",),
        "a row that is off: vramcast predict and vramcast probe with --trace, then vramcast diff.",
    ),
    "calibrate": Lesson(
        "What do CUDA's libraries take on the GPU here?",
        ("vramcast calibrate", "vramcast calibrate train.py:build batch_size=8"),
        "predict again: the table is found by itself, here and wherever it is copied to.",
    ),
    "gpus": Lesson(
        "Which GPUs are known by name?",
        ("vramcast gpus",),
        "vramcast predict ... --gpu NAME; for a GPU that is not there, --memory 24GiB.",
    ),
    "zoo": Lesson(
        "Which models come with vramcast? Which size has N parameters?",
        ("vramcast zoo", "vramcast zoo e5 --params 50M --dim 1536"),
        "vramcast predict NAME batch_size=8 --gpu rtx-4090.",
    ),
}
