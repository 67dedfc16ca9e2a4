"""The line that a program is started with: knobs in braces, and what each launcher starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vramcast.errors import UsageError, WorkloadError
from vramcast.workload import name_of
from vramcast.workload.launch_line import LaunchLine, launch_line
from vramcast.workload.launchers import read_line
from vramcast.workload.world import rank_variables, with_rank


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return "train.py"


def test_names_in_braces_are_knobs_and_take_their_values() -> None:
    line = launch_line(["python", "train.py", "--b={batch_size}", "{seq_len}", "{{batch_size}}"])
    assert line.knobs == ["batch_size", "seq_len"]
    assert line.filled({"batch_size": 8, "seq_len": "512"})[2:] == ["--b=8", "512", "{batch_size}"]


def test_json_and_other_braces_are_no_knobs() -> None:
    line = launch_line(["python", "t.py", '{"a": 1}', "x={a:1}", "{}", "${HOME}"])
    assert line.knobs == ["HOME"], "a shell would have replaced that one"
    assert launch_line(["python", "t.py", '{"a": 1}', "x={a:1}", "{}"]).knobs == []


def test_a_line_is_shown_as_it_is_typed() -> None:
    assert str(LaunchLine(("python", "t.py", "--b={batch_size}", "two words"))) == (
        "python t.py --b={batch_size} 'two words'"
    )
    assert name_of(["python", "t.py"]) == "python t.py"


def test_a_value_without_a_place_and_a_place_without_a_value_are_named() -> None:
    line = launch_line(["python", "train.py", "--batch_size=12", "--n={layers}"])
    with pytest.raises(WorkloadError, match="no {batch_size}") as missing:
        line.check_knobs({"batch_size": 8, "layers": 2})
    assert "-- python train.py --batch_size={batch_size}" in missing.value.advice
    with pytest.raises(WorkloadError, match="no value for it"):
        line.check_knobs({})
    line.check_knobs({"layers": 2})


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--batch-size", "64"], "--batch-size {batch_size}"),
        (["--per_device_train_batch_size=8"], "--per_device_train_batch_size={batch_size}"),
        (["-b", "64", "--epochs", "1"], "-b {batch_size} --epochs 1"),
        (["--epochs", "1"], "for example --batch_size={batch_size}"),
    ],
)
def test_a_search_without_its_placeholder_shows_the_line_with_it(
    words: list[str], shown: str
) -> None:
    with pytest.raises(WorkloadError, match="This command changes") as error:
        launch_line(["python", "main.py", *words]).check_knobs({}, moved=["batch_size"])
    assert shown in error.value.advice


@pytest.mark.parametrize(
    ("line", "flags", "arguments"),
    [
        ("python train.py --a 1", (), ("--a", "1")),
        ("train.py -x", (), ("-x",)),
        ("python3.11 -u -O train.py", ("-u", "-O"), ()),
        ("python -W ignore -X dev -uB train.py -m", ("-W", "ignore", "-X", "dev", "-uB"), ("-m",)),
        ("python -Wignore train.py", ("-Wignore",), ()),
    ],
)
def test_python_with_its_flags_starts_a_file(
    train: str, line: str, flags: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    program = read_line(line.split())
    assert (program.target, program.is_module) == (train, False)
    assert (program.flags, program.arguments) == (flags, arguments)
    assert program.interpreter is None and program.world_size == 1


def test_python_m_starts_a_module() -> None:
    program = read_line(["python", "-m", "package.train", "--a", "-m"])
    assert (program.target, program.is_module) == ("package.train", True)
    assert program.arguments == ("--a", "-m")
    assert read_line(["python", "-mpackage.train"]).target == "package.train"


def test_assignments_before_the_line_are_its_environment(train: str) -> None:
    program = read_line(["CUDA_VISIBLE_DEVICES=0", "A=b=c", "python", train])
    assert program.environment == {"CUDA_VISIBLE_DEVICES": "0", "A": "b=c"}
    assert read_line(["env", "A=1", "python", train]).environment == {"A": "1"}


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc-per-node 4 --nnodes=2 train.py --lr 1",
        "torchrun --nproc 4 --nnodes=2 -r 3 --rdzv_backend c10d train.py --lr 1",
        "torchrun --standalone --nproc_per_node=4 --nnodes 1:2 --rdzv-backend c10d train.py --lr 1",
        "python -m torch.distributed.run --nproc-per-node=4 --nnodes 2 train.py --lr 1",
    ],
)
def test_torchrun_is_its_first_process(train: str, line: str) -> None:
    program = read_line(line.split())
    assert (program.target, program.arguments) == (train, ("--lr", "1"))
    assert (program.world_size, program.gpus_per_node) == (8, 4)
    environment = program.environment
    assert (environment["RANK"], environment["WORLD_SIZE"]) == ("0", "8")
    assert environment["LOCAL_WORLD_SIZE"] == "4"


def test_torchrun_starts_a_module_too() -> None:
    program = read_line(["torchrun", "-m", "package.train", "--lr", "1"])
    assert (program.target, program.is_module, program.world_size) == ("package.train", True, 1)


def test_accelerate_launch_reads_its_configuration_file(train: str) -> None:
    pytest.importorskip("accelerate")
    Path("config.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\n"
        "num_processes: 4\nmixed_precision: bf16\nuse_cpu: false\n"
    )
    program = read_line(["accelerate", "launch", "--config_file", "config.yaml", train, "--lr=1"])
    assert (program.target, program.arguments, program.world_size) == (train, ("--lr=1",), 4)
    assert program.environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
    Path("deepspeed.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 4\nmixed_precision: bf16\n"
        "deepspeed_config:\n  zero_stage: 2\n"
    )
    program = read_line(["accelerate", "launch", "--config_file", "deepspeed.yaml", train])
    assert (program.world_size, program.environment["ACCELERATE_DEEPSPEED_ZERO_STAGE"]) == (4, "2")
    fields = program.environment["ACCELERATE_CONFIG_DS_FIELDS"].split(",")
    assert {"zero_stage", "mixed_precision"} <= {*fields}
    with pytest.raises(WorkloadError, match="refuses its options"):
        read_line(["accelerate", "launch", "--multi_gpu", "--use_fsdp", train])
    with pytest.raises(WorkloadError, match="There is no configuration file"):
        read_line(["accelerate", "launch", "--config_file", "none.yaml", train])


def test_the_interpreter_of_vramcast_itself_is_not_another_one(train: str) -> None:
    assert read_line([sys.executable, train]).interpreter is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "starts no program"),
        ("A=1", "starts no program"),
        ("bash train.sh", "There is no script in `bash train.sh`"),
        ("srun -n 2", "`srun` starts no program"),
        ("mpirun -np many python train.py", "mpirun's -np is 'many'"),
        ("make train", "'make' is not a launcher"),
        ("python", "without a program"),
        ("python -c pass", "has no file"),
        ("python -Z train.py", "no option '-Z'"),
        ("python trian.py", "no file 'trian.py'"),
        ("python .", "is not a file"),
        ("python -m", "names no module"),
        ("python -W", "has no value"),
        ("torchrun --nproc-per-node", "has no value"),
        ("torchrun --warp-speed 9 train.py", "option --warp-speed is not known"),
        ("torchrun --n 9 train.py", "option --n is not known"),
        ("torchrun -x 9 train.py", "option -x is not known"),
        ("torchrun --nproc-per-node many train.py", "'many'"),
        ("torchrun --nproc-per-node 99999999999999999999 train.py", "expected a whole number"),
        ("torchrun", "starts no program"),
        ("accelerate config", "starts no training"),
        ("/no/such/python train.py", "no interpreter"),
        ("uv run", "starts no program"),
    ],
)
def test_what_is_not_understood_is_said_with_what_would_be(
    train: str, line: str, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message) as error:
        read_line(line.split())
    assert error.value.advice


def test_of_a_script_of_a_shell_the_lines_are_shown_that_may_start_the_training(train: str) -> None:
    Path("run.sh").write_text(
        "#!/bin/bash\n# python old.py\nexport A=1\nCUDA_VISIBLE_DEVICES=0 python train.py \\\n"
        "    --lr $LR\nsrun -n 1 torchrun --nproc-per-node 2 train.py\n"
    )
    for line in ("bash run.sh", "./run.sh --fast"):
        with pytest.raises(WorkloadError) as error:
            read_line(line.split())
        first, *shown = error.value.advice.splitlines()
        assert [line.partition(" -- ")[2] for line in shown] == [
            "CUDA_VISIBLE_DEVICES=0 python train.py --lr $LR",
            "srun -n 1 torchrun --nproc-per-node 2 train.py",
        ]


def test_a_variable_on_a_line_of_its_own_is_no_part_of_the_line_that_is_shown(train: str) -> None:
    Path("run.sh").write_text(
        "model=small\n\npython train.py --model $model\n"
        "model=large\nNAME='a b' python train.py --model $model\n"
    )
    with pytest.raises(WorkloadError) as error:
        read_line(["bash", "run.sh"])
    assert error.value.advice.splitlines()[1:] == [
        "  vramcast ... -- python train.py --model small",
        "  vramcast ... -- NAME='a b' python train.py --model large",
    ]


def test_the_one_line_of_a_script_that_starts_the_training_is_read(train: str) -> None:
    Path("job.sh").write_text(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\nexport SEED=7\n"
        'LR="3e-4"\necho begin\nsrun python train.py \\\n'
        '  --lr ${LR} --size ${SIZE:-9} "$@" > log\n'
    )
    program = read_line(["sbatch", "job.sh", "--fast"])
    assert program.argv == ["train.py", "--lr", "3e-4", "--size", "9", "--fast"]
    assert (program.world_size, program.gpus_per_node) == (8, 4)
    assert program.environment["SEED"] == "7"
    Path("job.sh").write_text("for lr in 1 2; do\n  python train.py --lr $lr\ndone\n")
    with pytest.raises(WorkloadError, match="is not run"):
        read_line(["bash", "job.sh"])


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --a 'b c' > log.txt 2>&1",
        "nohup python train.py --a 'b c' &> log.txt &",
        "python train.py --a 'b c' | tee log.txt",
        "python train.py --a 'b c' > \"my log.txt\" 2>&1 &",
        "python train.py --a 'b c' >> 'logs of today'/log.txt < 'my input'",
    ],
)
def test_a_command_in_one_word_is_split_as_a_shell_does(train: str, command: str) -> None:
    for words in ([command], ["bash", "-c", command]):
        assert read_line(words).argv == ["train.py", "--a", "b c"]


@pytest.mark.parametrize(
    "command", ["cd x && python train.py", "python train.py; echo done", "python train.py $A"]
)
def test_what_only_a_shell_understands_is_refused(train: str, command: str) -> None:
    with pytest.raises(WorkloadError, match="What only a shell understands") as error:
        read_line([command])
    assert "the one command that starts the training" in error.value.advice


def test_of_an_unknown_launcher_what_it_starts_is_suggested(train: str) -> None:
    with pytest.raises(WorkloadError, match="'docker' is not a launcher") as error:
        read_line(["docker", "run", "image", "A=1", "python", "train.py", "-b", "8"])
    assert error.value.advice == "Leave out what it adds: -- A=1 python train.py -b 8"


@pytest.mark.parametrize(
    ("line", "world"),
    [
        ("srun python train.py 7", (1, 1)),
        ("srun -N 2 --ntasks-per-node=8 --gpus-per-node 8 -l python train.py 7", (16, 8)),
        ("srun -n16 -N2 -c 4 --cpu-bind=none python -u train.py 7", (16, 8)),
        ("srun --nodes 2 torchrun --nnodes 2 --nproc-per-node 4 train.py 7", (8, 4)),
        ("mpirun --allow-run-as-root -np 8 --mca btl tcp python train.py 7", (8, 8)),
        ("mpiexec -n 8 -ppn 4 python train.py 7", (8, 4)),
        ("composer -n 4 train.py 7", (4, 4)),
    ],
)
def test_one_of_the_processes_that_a_cluster_starts_is_run(
    train: str, line: str, world: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    program = read_line(line.split())
    assert program.argv == [train, "7"]
    assert (program.world_size, program.gpus_per_node) == world
    if "torchrun" not in line and line.startswith(("srun", "mpi")):
        size = {"srun": "SLURM_NTASKS"}.get(line.split()[0], "OMPI_COMM_WORLD_SIZE")
        assert program.environment[size] == str(world[0])


@pytest.mark.parametrize(
    ("options", "world"),
    [
        ("", (1, 1)),
        ("--num_gpus 8", (8, 8)),
        ("--num_nodes=2 --num_gpus=4 --master_port 29501", (8, 4)),
        ("--include localhost:1,3", (2, 2)),
        ("-H hosts --include a:0,1@b:0,1 --no_ssh", (4, 2)),
    ],
)
def test_deepspeed_tells_a_process_its_number_before_the_arguments(
    train: str, options: str, world: tuple[int, int]
) -> None:
    program = read_line(["deepspeed", *options.split(), train, "7"])
    assert program.argv == [train, "--local_rank=0", "7"]
    assert (program.world_size, program.gpus_per_node) == world
    assert program.environment["WORLD_SIZE"] == str(world[0])


def test_deepspeed_may_be_told_not_to(train: str) -> None:
    assert read_line(["deepspeed", "--no_local_rank", train, "7"]).argv == [train, "7"]
    with pytest.raises(WorkloadError, match="deepspeed's --num_gpus is 'eight'"):
        read_line(["deepspeed", "--num_gpus", "eight", train])
    with pytest.raises(WorkloadError, match="deepspeed starts no program"):
        read_line(["deepspeed", "--num_gpus"])


def test_another_rank_has_its_number_in_the_variables_of_its_launcher() -> None:
    told = with_rank({"SLURM_PROCID": "0", "A": "1"}, rank_variables(3, 4, 4))
    assert (told["RANK"], told["SLURM_PROCID"], told["A"]) == ("3", "3", "1")
    assert with_rank({"SLURM_PROCID": "0"}, {}) == {"SLURM_PROCID": "0"}


def test_a_notebook_is_made_a_program_first(train: str) -> None:
    Path("lesson.ipynb").write_text("{}")
    with pytest.raises(WorkloadError, match="'lesson.ipynb' is a notebook") as error:
        read_line(["python", "lesson.ipynb"])
    assert "jupyter nbconvert --to script lesson.ipynb" in error.value.advice


def test_a_file_that_no_program_is_as_large_as_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "train.py").open("wb") as file:
        file.truncate(40 << 30)
    with pytest.raises(WorkloadError, match="has 42,949,672,960 bytes"):
        read_line(["python", str(tmp_path / "train.py")])


def test_a_file_with_a_similar_name_is_suggested(train: str) -> None:
    with pytest.raises(WorkloadError) as error:
        read_line(["python", "trian.py"])
    assert "Did you mean 'train.py'" in error.value.advice


def test_words_that_are_none_are_refused() -> None:
    for words in ([], ["python", 3]):
        with pytest.raises(UsageError, match="list of words"):
            launch_line(words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "before",
    [
        "timeout 90",
        "timeout -k 5 -s KILL 2h",
        "nice",
        "nice -n 10 nohup",
        "taskset -c 0,1 time -p",
        "numactl -N 0",
    ],
)
def test_a_command_that_runs_another_is_passed_over(train: str, before: str) -> None:
    program = read_line(["SEED=1", *before.split(), "python", train, "-b", "64"])
    assert program.argv == [train, "-b", "64"] and program.environment == {"SEED": "1"}
    with pytest.raises(WorkloadError, match="starts no program"):
        read_line(before.split())


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("uv run train.py 7", "train.py"),
        ("uv run --no-project --active python -O train.py 7", "train.py"),
        ("uv run --with torch --no-extra gpu -p 3.12 -- python train.py 7", "train.py"),
        ("uv run -q -m package.train 7", "package.train"),
        ("conda run -n ml --no-capture-output python train.py 7", "train.py"),
        ("poetry run python train.py 7", "train.py"),
        ("pdm run -s python train.py 7", "train.py"),
        ("hatch run python train.py 7", "train.py"),
    ],
)
def test_the_line_behind_uv_and_conda_is_run_by_the_interpreter_that_they_choose(
    train: str, line: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("uv", "conda", "poetry", "pdm", "hatch"):
        tool = tmp_path / name
        tool.write_text("#!/bin/sh\necho /env/bin/python\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = read_line(line.split())
    assert (program.target, program.arguments) == (target, ("7",))
    assert program.interpreter == "/env/bin/python"
