"""Text and speech: x-transformers, peft, transformers, Liger, packed sequences."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vramcast_zoo.suites.training import DTYPES, training_step

Step = Callable[[], torch.Tensor]


def _transformer(class_name: str, config_name: str, precision: str = "fp32", **settings):
    """A model of transformers with these settings, in this precision, on the GPU."""
    import transformers

    config = getattr(transformers, config_name)(**settings)
    torch.set_default_dtype(DTYPES[precision])
    with torch.device("cuda"):
        model = getattr(transformers, class_name)(config)
    torch.set_default_dtype(torch.float32)
    return model.train()


def _llama(precision: str = "fp32", depth: int = 8, width: int = 768):
    return _transformer(
        "LlamaForCausalLM",
        "LlamaConfig",
        precision,
        vocab_size=32000,
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=depth,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 128,
    )


def _tokens(batch_size: int, seq_len: int, vocabulary: int = 32000) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch_size, seq_len), device="cuda")


def x_transformer(*, batch_size: int = 8, seq_len: int = 1024, flash: bool = True) -> Step:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=512, depth=8, heads=8, rotary_pos_emb=True, attn_flash=flash, ff_glu=True)
    model = TransformerWrapper(num_tokens=20000, max_seq_len=seq_len, attn_layers=layers)
    model = AutoregressiveWrapper(model).cuda()
    tokens = _tokens(batch_size, seq_len + 1, 20000)
    return training_step(lambda: model(tokens), model.parameters(), autocast="bf16")


def performer(*, batch_size: int = 4, seq_len: int = 2048) -> Step:
    from performer_pytorch import PerformerLM

    model = PerformerLM(
        num_tokens=20000, max_seq_len=seq_len, dim=512, depth=6, heads=8, causal=False
    ).cuda()
    tokens = _tokens(batch_size, seq_len, 20000)
    return training_step(
        lambda: F.cross_entropy(model(tokens).transpose(1, 2), tokens), model.parameters()
    )


def lora(*, batch_size: int = 4, seq_len: int = 1024, checkpointing: bool = False) -> Step:
    from peft import LoraConfig, get_peft_model

    adapted = LoraConfig(r=16, target_modules="all-linear", lora_dropout=0.05)
    model = get_peft_model(_llama("bf16"), adapted).cuda()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    tokens = _tokens(batch_size, seq_len)
    return training_step(lambda: model(input_ids=tokens, labels=tokens).loss, model.parameters())


def liger(*, batch_size: int = 4, seq_len: int = 1024) -> Step:
    """Llama with the Triton kernels of Liger."""
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama()
    model = _llama("bf16")
    tokens = _tokens(batch_size, seq_len)
    return training_step(lambda: model(input_ids=tokens, labels=tokens).loss, model.parameters())


def preferences(*, batch_size: int = 4, seq_len: int = 512) -> Step:
    """DPO: a policy beside a frozen copy of itself, on pairs of answers."""
    policy = _llama("bf16")
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    tokens = _tokens(2 * batch_size, seq_len)

    def log_probability(model: nn.Module) -> torch.Tensor:
        logits = model(input_ids=tokens).logits[:, :-1]
        each = logits.log_softmax(-1).gather(2, tokens[:, 1:, None]).squeeze(2)
        return each.sum(1)

    def loss() -> torch.Tensor:
        with torch.inference_mode():
            expected = log_probability(reference)
        gain = log_probability(policy) - expected.clone()
        return -F.logsigmoid(0.1 * (gain[:batch_size] - gain[batch_size:])).mean()

    return training_step(loss, policy.parameters())


def policy_gradient(*, batch_size: int = 8, prompt: int = 64, answer: int = 64) -> Step:
    """Answers are generated inside the step, then their probability is raised by their reward."""
    model = _llama("bf16", depth=4)
    prompts = _tokens(batch_size, prompt)

    def loss() -> torch.Tensor:
        model.eval()
        with torch.no_grad():
            tokens = model.generate(
                prompts,
                do_sample=True,
                min_new_tokens=answer,
                max_new_tokens=answer,
                pad_token_id=0,
            )
        model.train()
        reward = torch.rand(batch_size, device="cuda")
        advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
        logits = model(input_ids=tokens).logits[:, prompt - 1 : -1]
        chosen = torch.distributions.Categorical(logits=logits.float()).log_prob(tokens[:, prompt:])
        return -(advantage[:, None] * chosen).mean()

    return training_step(loss, model.parameters())


def distillation(*, batch_size: int = 16, seq_len: int = 256) -> Step:
    sizes = {"vocab_size": 30522, "hidden_size": 768}
    teacher = _transformer("BertForMaskedLM", "BertConfig", **sizes).eval().requires_grad_(False)
    student = _transformer("BertForMaskedLM", "BertConfig", num_hidden_layers=4, **sizes)
    tokens = _tokens(batch_size, seq_len, 30522)

    def loss() -> torch.Tensor:
        with torch.no_grad():
            wanted = (teacher(input_ids=tokens).logits / 2).softmax(-1)
        got = (student(input_ids=tokens).logits / 2).log_softmax(-1)
        return F.kl_div(got, wanted, reduction="batchmean")

    return training_step(loss, student.parameters(), autocast="bf16")


def sentence_embedding(*, batch_size: int = 64, seq_len: int = 128) -> Step:
    """Pairs of sentences, each the other's only match in the batch, sentence-transformers' loss."""
    from sentence_transformers.util import cos_sim

    model = _transformer("MPNetModel", "MPNetConfig", num_hidden_layers=6)
    pair = [_tokens(batch_size, seq_len, 30000) for _ in range(2)]
    labels = torch.arange(batch_size, device="cuda")

    def loss() -> torch.Tensor:
        left, right = (model(input_ids=tokens).last_hidden_state.mean(1) for tokens in pair)
        return F.cross_entropy(cos_sim(left, right) * 20, labels)

    return training_step(loss, model.parameters(), autocast="fp16", scale_loss=True)


def wav2vec(
    *, batch_size: int = 4, seconds: int = 8, autocast: str = "", architecture: str = "Wav2Vec2"
) -> Step:
    """Speech to characters with CTC. Which layers a step leaves out is drawn."""
    names = f"{architecture}ForCTC", f"{architecture}Config"
    model = _transformer(*names, num_hidden_layers=6, vocab_size=32, mask_time_prob=0.0)
    audio = torch.randn(batch_size, 16000 * seconds, device="cuda")
    labels = torch.randint(1, 32, (batch_size, 60), device="cuda")
    return training_step(
        lambda: model(input_values=audio, labels=labels).loss, model.parameters(), autocast=autocast
    )


def whisper(*, batch_size: int = 4, seq_len: int = 128) -> Step:
    model = _transformer(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
    )
    sound = torch.randn(batch_size, 80, 3000, device="cuda")
    labels = _tokens(batch_size, seq_len, 51000)
    return training_step(
        lambda: model(input_features=sound, labels=labels).loss,
        model.parameters(),
        autocast="bf16",
    )


class DeepSpeech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
        )
        self.recur = nn.LSTM(32 * 40, 512, 3, bidirectional=True, batch_first=True)
        self.out = nn.Linear(1024, 29)

    def forward(self, sound: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x = self.convolve(sound).flatten(1, 2).transpose(1, 2)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        mixed, _ = nn.utils.rnn.pad_packed_sequence(self.recur(packed)[0], batch_first=True)
        return self.out(mixed).log_softmax(-1).transpose(0, 1)


def deep_speech(*, batch_size: int = 8, frames: int = 600) -> Step:
    """Convolutions, a packed LSTM, CTC."""
    model = DeepSpeech().cuda()
    sound = torch.randn(batch_size, 1, 160, frames, device="cuda")
    lengths = torch.linspace(frames // 2, frames // 4, batch_size).long()
    labels = torch.randint(1, 29, (batch_size, 50), device="cuda")
    wanted = torch.full((batch_size,), 50)
    return training_step(
        lambda: F.ctc_loss(model(sound, lengths), labels, lengths, wanted, zero_infinity=True),
        model.parameters(),
    )


def packed(
    *,
    kind: str = "GRU",
    batch_size: int = 64,
    longest: int = 200,
    hidden: int = 384,
    layers: int = 2,
    bidirectional: bool = True,
    autocast: str = "",
) -> Step:
    """Sentences of different lengths through a recurrent network, to one of four classes."""
    embed = nn.Embedding(20000, 300).cuda()
    recur = getattr(nn, kind)(300, hidden, layers, bidirectional=bidirectional).cuda()
    out = nn.Linear(hidden * (1 + bidirectional), 4).cuda()
    words = _tokens(longest, batch_size, 20000)
    lengths = torch.linspace(longest, longest // 8, batch_size).long()
    labels = torch.randint(0, 4, (batch_size,), device="cuda")

    def loss() -> torch.Tensor:
        given = nn.utils.rnn.pack_padded_sequence(embed(words), lengths)
        mixed, _ = nn.utils.rnn.pad_packed_sequence(recur(given)[0])
        return F.cross_entropy(out(mixed.amax(0)), labels)

    everything = nn.ModuleList([embed, recur, out])
    return training_step(loss, everything.parameters(), autocast=autocast)


def translation(*, batch_size: int = 32, seq_len: int = 96) -> Step:
    """nn.Transformer with padding masks, as the tutorials have it."""
    model = nn.Transformer(512, 8, 4, 4, 2048, batch_first=True).cuda()
    embed, out = nn.Embedding(30000, 512).cuda(), nn.Linear(512, 30000).cuda()
    source, target = (_tokens(batch_size, seq_len, 30000) for _ in range(2))
    padding = torch.zeros(batch_size, seq_len, dtype=torch.bool, device="cuda")
    padding[:, -8:] = True

    def loss() -> torch.Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(seq_len, device="cuda")
        mixed = model(
            embed(source),
            embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.cross_entropy(out(mixed).transpose(1, 2), target)

    everything = nn.ModuleList([model, embed, out])
    return training_step(loss, everything.parameters())


def jagged(*, batch_size: int = 32, width: int = 512, heads: int = 8) -> Step:
    """Sequences of different lengths without padding, in a nested tensor."""
    lengths = torch.linspace(64, 512, batch_size).long().tolist()
    qkv = nn.Linear(width, 3 * width).cuda().bfloat16()
    out = nn.Linear(width, width).cuda().bfloat16()
    rows = [torch.randn(n, width, device="cuda", dtype=torch.bfloat16) for n in lengths]
    batch = torch.nested.nested_tensor(rows, layout=torch.jagged, device="cuda")

    def loss() -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, [heads, width // heads]).transpose(1, 2)
            for part in qkv(batch).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out(mixed.transpose(1, 2).flatten(-2)).values().float().square().mean()

    return training_step(loss, [*qkv.parameters(), *out.parameters()])
