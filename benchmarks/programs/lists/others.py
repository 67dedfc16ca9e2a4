"""Programs for graphs, points, sequences, games and what people buy."""

from __future__ import annotations

from lists.listed import EXAMPLES, LIGHTNING, Listed

CITATIONS = "citations"

PROGRAMS = [
    Listed("gat", EXAMPLES, "gat", "python main.py", (("gat/cora", CITATIONS),)),
    Listed(
        "pygcn",
        "tkipf/pygcn",
        "pygcn",
        "python train.py",
        (
            ("data/cora/cora.content", f"{CITATIONS}/cora.content"),
            ("data/cora/cora.cites", f"{CITATIONS}/cora.cites"),
        ),
    ),
    Listed(
        "lightning_bug_report",
        LIGHTNING,
        "examples/pytorch/bug_report",
        "python bug_report_model.py",
    ),
    Listed("cleanrl_ppo", "vwxyzjn/cleanrl", ".", "python cleanrl/ppo.py"),
    Listed(
        "dlrm_random",
        "facebookresearch/dlrm",
        ".",
        "python dlrm_s_pytorch.py --use-gpu --mini-batch-size=2048 --num-batches=20 "
        "--arch-sparse-feature-size=64 --arch-embedding-size=100000-200000-50000-400000 "
        "--arch-mlp-bot=13-512-256-64 --arch-mlp-top=512-256-1 "
        "--num-indices-per-lookup=10 --num-indices-per-lookup-fixed=True",
    ),
    *(
        Listed(f"cleanrl_{name}", "vwxyzjn/cleanrl", ".", f"python cleanrl/{name}.py")
        for name in ("dqn", "c51", "pqn")
    ),
    Listed(
        "pygat",
        "Diego999/pyGAT",
        ".",
        "python train.py",
        (
            ("data/cora/cora.content", f"{CITATIONS}/cora.content"),
            ("data/cora/cora.cites", f"{CITATIONS}/cora.cites"),
        ),
    ),
    *(
        Listed(
            f"geometric_{name}",
            "pyg-team/pytorch_geometric",
            "examples",
            f"python {name}.py",
            (("data/Planetoid/Cora/raw", "planetoid"),),
        )
        for name in ("gcn", "gat", "link_pred")
    ),
    *(
        Listed(
            f"pointnet_{name}",
            "fxia22/pointnet.pytorch",
            "utils",
            f"python train_{name}.py --dataset DATA/shapes --nepoch 2 --workers 2{more}",
            beside=("pointnet", "misc"),
        )
        for name, more in (("classification", ""), ("segmentation", " --class_choice Chair"))
    ),
    Listed(
        "sasrec",
        "pmixer/SASRec.pytorch",
        "python",
        "python main.py --dataset=wikipedia --train_dir=default --maxlen=200 --device=cuda",
    ),
    *(
        Listed(f"tcn_{name}", "locuslab/TCN", f"TCN/{name}", f"python {script}.py", (), ("TCN",))
        for name, script in (("adding_problem", "add_test"), ("copy_memory", "copymem_test"))
    ),
    Listed(
        "pointnet2_classification",
        "yanx27/Pointnet_Pointnet2_pytorch",
        ".",
        "python train_classification.py --model pointnet2_cls_ssg --num_category 10 --use_normals "
        "--log_dir pointnet2_cls_ssg",
        (("data/modelnet40_normal_resampled", "clouds"),),
    ),
    # the first has sets of random sizes, of which no two runs have the same
    Listed("set_transformer", "juho-lee/set_transformer", ".", "python run.py"),
    Listed(
        "set_transformer_512",
        "juho-lee/set_transformer",
        ".",
        "python run.py --N_min 512 --N_max 513",
    ),
    *(
        Listed(
            f"pointnet2_{name}",
            "yanx27/Pointnet_Pointnet2_pytorch",
            ".",
            f"python train_classification.py --model {model} --num_category 10 --use_normals "
            f"--log_dir {model}",
            (("data/modelnet40_normal_resampled", "clouds"),),
        )
        for name, model in (("multi_scale", "pointnet2_cls_msg"), ("without_sets", "pointnet_cls"))
    ),
    Listed(
        "temperatures",
        "oliverguhr/transformer-time-series-prediction",
        ".",
        "python transformer-singlestep.py",
    ),
    Listed(
        "dgcnn",
        "WangYueFt/dgcnn",
        "pytorch",
        "python main.py --epochs 2",
        (("pytorch/data/modelnet40_ply_hdf5_2048", "solids"),),
    ),
    Listed("sac_pendulum", "XinJingHao/DRL-Pytorch", "5.2 SAC-Continuous", "python main.py"),
    Listed("ppo_cartpole", "XinJingHao/DRL-Pytorch", "3.1 PPO-Discrete", "python main.py"),
]
