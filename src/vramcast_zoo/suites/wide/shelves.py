"""Parts of libraries that other rows leave alone: their odd families, losses and methods."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import training_step

Step = Callable[[], torch.Tensor]


def flux(*, batch_size: int = 2, size: int = 32, checkpointing: bool = False) -> Step:
    """A transformer for pictures and words at once, with rotated positions (diffusers)."""
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        in_channels=64, num_layers=3, num_single_layers=6, attention_head_dim=64,
        num_attention_heads=8, joint_attention_dim=512, pooled_projection_dim=256,
        guidance_embeds=True, axes_dims_rope=(16, 24, 24),
    ).cuda()  # fmt: skip
    if checkpointing:
        model.enable_gradient_checkpointing()
    places = torch.zeros(size, size, 3)
    places[..., 1], places[..., 2] = torch.arange(size)[:, None], torch.arange(size)[None]
    latents = torch.randn(batch_size, size * size, 64, device="cuda")
    given = {
        "encoder_hidden_states": torch.randn(batch_size, 128, 512, device="cuda"),
        "pooled_projections": torch.randn(batch_size, 256, device="cuda"),
        "img_ids": places.view(-1, 3).cuda(), "txt_ids": torch.zeros(128, 3, device="cuda"),
        "guidance": torch.full((batch_size,), 3.5, device="cuda"),
    }  # fmt: skip

    def loss() -> torch.Tensor:
        noise, t = torch.randn_like(latents), torch.rand(batch_size, device="cuda")
        mixed = torch.lerp(latents, noise, t[:, None, None])
        return F.mse_loss(model(mixed, timestep=t, **given).sample, noise - latents)

    return training_step(loss, model.parameters())


def controlled(*, batch_size: int = 2, size: int = 32) -> Step:
    """A copy of the encoder learns to steer a frozen network (diffusers' ControlNet)."""
    from diffusers import ControlNetModel, DDPMScheduler, UNet2DConditionModel

    shape = {
        "block_out_channels": (64, 128, 256), "cross_attention_dim": 256, "layers_per_block": 1,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "attention_head_dim": 8,
    }  # fmt: skip
    up = ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D")
    unet = UNet2DConditionModel(**shape, up_block_types=up).cuda().requires_grad_(False)
    control = ControlNetModel.from_unet(unet).cuda()
    plan = DDPMScheduler()
    latents = torch.randn(batch_size, 4, size, size, device="cuda")
    words = torch.randn(batch_size, 77, 256, device="cuda")
    lines = torch.rand(batch_size, 3, 8 * size, 8 * size, device="cuda")

    def loss() -> torch.Tensor:
        noise = torch.randn_like(latents)
        t = torch.randint(0, 1000, (batch_size,), device="cuda")
        noisy = plan.add_noise(latents, noise, t)
        down, mid = control(noisy, t, words, lines, return_dict=False)
        made = unet(
            noisy, t, words, down_block_additional_residuals=down, mid_block_additional_residual=mid
        ).sample
        return F.mse_loss(made, noise)

    return training_step(loss, control.parameters(), autocast="fp16", scale_loss=True)


def window_volumes(*, kind: str = "SwinUNETR", batch_size: int = 1, size: int = 64) -> Step:
    """Medical volumes: shifted windows, or a network with losses at several depths (monai)."""
    from monai.losses import DeepSupervisionLoss, DiceCELoss
    from monai.networks import nets

    if kind == "SwinUNETR":
        model = nets.SwinUNETR(in_channels=1, out_channels=4, feature_size=24, use_checkpoint=True)
    else:
        steps = [1, 2, 2, 2]
        model = nets.DynUNet(
            3, 1, 4, [3] * 4, steps, steps[1:], deep_supervision=True, deep_supr_num=2
        )
    model, volume = model.cuda(), torch.randn(batch_size, 1, size, size, size, device="cuda")
    labels = torch.randint(0, 4, (batch_size, 1, size, size, size), device="cuda")
    each = DiceCELoss(to_onehot_y=True, softmax=True)
    judge = each if kind == "SwinUNETR" else DeepSupervisionLoss(each)

    def loss() -> torch.Tensor:
        made = model(volume)
        return judge(made if kind == "SwinUNETR" else list(made.unbind(1)), labels)

    return training_step(loss, model.parameters(), optimizer="sgd")


def factored_operator(*, kind: str = "TFNO", batch_size: int = 8, size: int = 64) -> Step:
    """Operators in Fourier space with factored weights, or of several resolutions (neuralop)."""
    from neuralop.models import TFNO, UNO

    if kind == "TFNO":
        model = TFNO((16, 16), 2, 2, 48, factorization="tucker", rank=0.3)
    else:
        model = UNO(
            2, 2, hidden_channels=32, uno_out_channels=[32, 64, 64, 32],
            uno_n_modes=[[12, 12], [6, 6], [6, 6], [12, 12]],
            uno_scalings=[[1.0, 1.0], [0.5, 0.5], [1, 1], [2, 2]], n_layers=4,
            channel_mlp_skip="linear",
        )  # fmt: skip
    model, field = model.cuda(), torch.randn(batch_size, 2, size, size, device="cuda")
    return training_step(lambda: F.mse_loss(model(field), field), model.parameters())


def gated_points(*, nodes: int = 1500, edges: int = 12_000) -> Step:
    """Vectors through gates and equivariant norms, and a gradient as the answer (e3nn)."""
    from e3nn import nn as e3
    from e3nn import o3

    gate = e3.Gate("32x0e", [F.silu], "24x0e", [torch.sigmoid], "16x1o + 8x2e")
    enter = o3.Linear("8x0e + 4x1o", gate.irreps_in).cuda()
    norm = e3.BatchNorm(gate.irreps_out).cuda()
    pair = o3.FullTensorProduct("16x1o", "1x1o").cuda()
    leave = o3.Linear(gate.irreps_out, "1x0e + 1x1o").cuda()
    gate = gate.cuda()
    x = torch.randn(nodes, 20, device="cuda")
    where = torch.randn(nodes, 3, device="cuda")
    source, target = torch.randint(0, nodes, (2, edges), device="cuda")

    def loss() -> torch.Tensor:
        moved = where.clone().requires_grad_()
        made = norm(gate(enter(x)))
        along = o3.spherical_harmonics("1o", moved[source] - moved[target], True)
        sent = pair(made[source, 32:80], along).square().mean(-1)
        energy = torch.zeros(nodes, device="cuda").index_add(0, target, sent).sum()
        (force,) = torch.autograd.grad(energy, moved, create_graph=True)
        return F.mse_loss(leave(made)[:, 1:], force)

    return training_step(loss, nn.ModuleList([enter, norm, leave]).parameters())


def deep_kernel(*, batch_size: int = 1024, inducing: int = 256) -> Step:
    """Inducing points on top of a network, by a bound on the evidence (gpytorch)."""
    import gpytorch

    class Process(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            shape = gpytorch.variational.CholeskyVariationalDistribution(inducing)
            points = torch.randn(inducing, 8)
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, shape))
            self.mean = gpytorch.means.LinearMean(8)
            self.kernel = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.MaternKernel(1.5, ard_num_dims=8)
            )

        def forward(self, x: torch.Tensor) -> object:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    features = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 8)).cuda()
    process = Process().cuda()
    likelihood = gpytorch.likelihoods.StudentTLikelihood().cuda()
    bound = gpytorch.mlls.PredictiveLogLikelihood(likelihood, process, 50_000)
    x, y = torch.randn(batch_size, 64, device="cuda"), torch.randn(batch_size, device="cuda")
    every = nn.ModuleList([features, process, likelihood])
    return training_step(lambda: -bound(process(features(x)), y), every.parameters())


def guided(*, batch_size: int = 4000, inputs: int = 60) -> Step:
    """Bayesian regression with groups; the guide is a low-rank normal (pyro)."""
    import pyro
    from pyro import distributions as dist
    from pyro.infer import SVI, TraceMeanField_ELBO
    from pyro.infer.autoguide import AutoLowRankMultivariateNormal

    x, y = torch.randn(batch_size, inputs, device="cuda"), torch.randn(batch_size, device="cuda")
    group = torch.randint(0, 40, (batch_size,), device="cuda")
    zero, one = torch.zeros((), device="cuda"), torch.ones((), device="cuda")

    def model() -> None:
        with pyro.plate("inputs", inputs):
            weights = pyro.sample("weights", dist.StudentT(4.0, zero, one))
        scale = pyro.sample("scale", dist.HalfCauchy(one))
        with pyro.plate("groups", 40):
            shift = pyro.sample("shift", dist.Normal(zero, scale))
        with pyro.plate("rows", batch_size):
            pyro.sample("y", dist.Laplace(x @ weights + shift[group], one), obs=y)

    pyro.clear_param_store()
    guide = AutoLowRankMultivariateNormal(model, init_loc_fn=pyro.infer.autoguide.init_to_median)
    elbo = TraceMeanField_ELBO(num_particles=16, vectorize_particles=False)
    learn = SVI(model, guide, pyro.optim.ClippedAdam({"lr": 1e-3}), loss=elbo)
    return lambda: torch.tensor(float(learn.step()))


def peft_method(*, method: str = "ia3", batch_size: int = 4, seq_len: int = 512) -> Step:
    """A small Llama with few weights that learn, by another method of peft."""
    import peft
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(
        vocab_size=8000, hidden_size=768, intermediate_size=2048, num_hidden_layers=6,
        num_attention_heads=12, num_key_value_heads=4, use_cache=False,
    )  # fmt: skip
    task, on = "CAUSAL_LM", ["q_proj", "v_proj"]
    config = {
        "ia3": lambda: peft.IA3Config(
            task_type=task, target_modules=[*on, "down_proj"], feedforward_modules=["down_proj"]
        ),
        "dora": lambda: peft.LoraConfig(
            task_type=task, r=8, target_modules=on, use_dora=True, lora_dropout=0.1
        ),
        "vera": lambda: peft.VeraConfig(task_type=task, r=128, target_modules=["q_proj"]),
        "oft": lambda: peft.OFTConfig(
            task_type=task, r=8, oft_block_size=0, target_modules=["q_proj"]
        ),
        "prefix": lambda: peft.PrefixTuningConfig(task_type=task, num_virtual_tokens=30),
        "loha": lambda: peft.LoHaConfig(task_type=task, r=8, target_modules=on),
    }[method]()
    model = peft.get_peft_model(LlamaForCausalLM(shape), config).cuda()
    tokens = torch.randint(0, 8000, (batch_size, seq_len), device="cuda")
    learning = [p for p in model.parameters() if p.requires_grad]
    return training_step(
        lambda: model(input_ids=tokens, labels=tokens).loss, learning, autocast="bf16"
    )


def residual_codes(*, kind: str = "residual", batch_size: int = 16, length: int = 1024) -> Step:
    """Codes of codes with moving averages, of signs, or of grids (vector-quantize-pytorch)."""
    import vector_quantize_pytorch as vq

    enter, leave = nn.Conv1d(1, 128, 8, 4, 2).cuda(), nn.ConvTranspose1d(128, 1, 8, 4, 2).cuda()
    codes = {
        "residual": lambda: vq.ResidualVQ(
            dim=128, num_quantizers=6, codebook_size=512, kmeans_init=True, kmeans_iters=4,
            threshold_ema_dead_code=2, quantize_dropout=True,
        ),
        "signs": lambda: vq.LFQ(dim=128, codebook_size=4096, entropy_loss_weight=0.02),
        "grid": lambda: vq.ResidualFSQ(dim=128, levels=[8, 5, 5, 3], num_quantizers=3),
    }[kind]().cuda()  # fmt: skip
    sound = torch.randn(batch_size, 1, 4 * length, device="cuda")
    # how many of its layers are used is drawn in every step
    seeds = ({"rand_quantize_dropout_fixed_seed": seed} for seed in count())

    def loss() -> torch.Tensor:
        made, _, *paid = codes(enter(sound).mT, **(next(seeds) if kind == "residual" else {}))
        return F.mse_loss(leave(made.mT), sound) + sum(
            p.sum() for p in paid if p.is_floating_point()
        )

    return training_step(loss, [*enter.parameters(), *leave.parameters(), *codes.parameters()])


def graphs_of_many(*, kind: str = "gps", batch_size: int = 64, nodes: int = 40) -> Step:
    """Layers of torch_geometric that others do not use: attention, relations, pooling."""
    import torch_geometric.nn as pyg

    total, width = batch_size * nodes, 128
    x = torch.randn(total, width, device="cuda")
    links = torch.randint(0, nodes, (2, 6 * total), device="cuda")
    links = links + torch.arange(batch_size, device="cuda").repeat_interleave(6 * nodes) * nodes
    batch = torch.arange(batch_size, device="cuda").repeat_interleave(nodes)
    kinds = torch.randint(0, 5, (6 * total,), device="cuda")
    wanted = torch.randn(batch_size, 1, device="cuda")
    inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    layers: dict[str, Callable[[], nn.Module]] = {
        "gps": lambda: pyg.GPSConv(width, pyg.GINConv(inner), heads=4, norm="layer_norm"),
        "relations": lambda: pyg.RGCNConv(width, width, 5, num_bases=3),
        "pooled": lambda: pyg.TransformerConv(width, width // 4, heads=4, beta=True, edge_dim=None),
        "pna": lambda: pyg.PNAConv(
            width, width, ["mean", "max", "std", "var"], ["identity", "linear"],
            torch.ones(20, dtype=torch.long), towers=4,
        ),
    }  # fmt: skip
    first, second = layers[kind]().cuda(), layers[kind]().cuda()
    pool, norm = pyg.TopKPooling(width, 0.5).cuda(), pyg.GraphNorm(width).cuda()
    gather = pyg.aggr.Set2Set(width, 3).cuda()
    head = nn.Linear(2 * width, 1).cuda()

    def run(layer: nn.Module, y: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        if kind == "gps":
            return layer(y, which, batch)
        return layer(y, which, kinds) if kind == "relations" else layer(y, which)

    def loss() -> torch.Tensor:
        y = norm(run(first, x, links), batch)
        if kind == "pooled":
            y, which, _, part, _, _ = pool(y, links, None, batch)
            return F.mse_loss(head(gather(run(second, y, which), part)), wanted)
        return F.mse_loss(head(gather(run(second, y, links), batch)), wanted)

    every = nn.ModuleList(
        [first, second, norm, gather, head, *([pool] if kind == "pooled" else [])]
    )
    return training_step(loss, every.parameters())


def sources(*, kind: str = "ConvTasNet", batch_size: int = 2, samples: int = 16_000) -> Step:
    """Sound is taken apart, or its frames go through conformers (torchaudio)."""
    import torchaudio

    sound = torch.randn(batch_size, 1, samples, device="cuda")
    if kind == "ConvTasNet":
        model: nn.Module = torchaudio.models.ConvTasNet(
            num_sources=2, msk_num_layers=6, msk_num_stacks=2
        ).cuda()
        truth = torch.randn(batch_size, 2, samples, device="cuda")

        def scaled(made: torch.Tensor) -> torch.Tensor:
            share = (made * truth).sum(-1, True) / truth.square().sum(-1, True)
            apart = (share * truth - made).square().sum(-1) + 1e-8
            return 10 * torch.log10(apart / (share * truth).square().sum(-1)).mean()

        return training_step(lambda: scaled(model(sound)), model.parameters())
    model = torchaudio.models.Conformer(80, 4, 256, 4, 31, dropout=0.1).cuda()
    hear = torchaudio.transforms.MelSpectrogram(16_000, n_mels=80).cuda()
    hide = torchaudio.transforms.TimeMasking(20, iid_masks=True).cuda()
    head = nn.Linear(80, 30).cuda()
    words = torch.randint(1, 30, (batch_size, 12), device="cuda")

    def loss() -> torch.Tensor:
        frames = hide((hear(sound.squeeze(1)) + 1e-6).log()).mT
        lengths = torch.full((batch_size,), frames.shape[1], device="cuda")
        made, _ = model(frames, lengths)
        odds = head(made).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(odds, words, lengths, torch.full_like(lengths, 12), zero_infinity=True)

    return training_step(loss, [*model.parameters(), *head.parameters()])


def x_variants(*, batch_size: int = 4, seq_len: int = 384, flash: bool = False) -> Step:
    """Positions as biases, gated layers, memories and normed keys at once (x-transformers)."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(
        dim=384, depth=4, heads=6, rel_pos_bias=True, ff_glu=True, ff_swish=True, attn_qk_norm=True,
        attn_kv_heads=2, use_rmsnorm=True, sandwich_norm=True, attn_gate_values=True,
        attn_pre_talking_heads=not flash, macaron=True, attn_flash=flash, shift_tokens=1,
    )  # fmt: skip
    model = AutoregressiveWrapper(
        TransformerWrapper(
            num_tokens=6000, max_seq_len=seq_len, num_memory_tokens=8, attn_layers=layers
        )
    ).cuda()
    tokens = torch.randint(0, 6000, (batch_size, seq_len + 1), device="cuda")
    return training_step(lambda: model(tokens), model.parameters())


def redundant(*, kind: str = "barlow", batch_size: int = 96, size: int = 64) -> Step:
    """Two views of a picture, by losses of lightly that have no negatives, or prototypes."""
    import torchvision
    from lightly import loss as losses
    from lightly.models.modules import BarlowTwinsProjectionHead, SwaVPrototypes

    body = torchvision.models.resnet18(weights=None)
    body.fc = BarlowTwinsProjectionHead(512, 1024, 512)
    body = body.cuda().to(memory_format=torch.channels_last)
    types = SwaVPrototypes(512, 300).cuda()
    judge = {
        "barlow": losses.BarlowTwinsLoss, "vicreg": losses.VICRegLoss, "swav": losses.SwaVLoss,
        "dcl": losses.DCLLoss,
    }[kind]()  # fmt: skip
    images = torch.rand(batch_size, 3, size, size, device="cuda")

    def loss() -> torch.Tensor:
        one, other = body(images), body(images.flip(-1) + 0.1 * torch.randn_like(images))
        if kind != "swav":
            return judge(one, other)
        types.normalize()
        near = [types(F.normalize(made)) for made in (one, other)]
        return judge(near, [])

    return training_step(loss, [*body.parameters(), *types.parameters()][:-1], optimizer="sgd")
