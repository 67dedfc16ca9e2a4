"""Tensors that are not plain: sparse, packed, nested; and attention modules."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.common import W, r, ri, train


def sparse_embedding():
    m = nn.Embedding(3000, W, sparse=True)
    return train(m, lambda m: m(ri(3000, 8, 16)).mean(), torch.optim.SparseAdam)


def sparse_embedding_sgd():
    m = nn.Embedding(3000, W, sparse=True)
    return train(m, lambda m: m(ri(3000, 8, 16)).mean(), torch.optim.SGD)


def sparse_embedding_adagrad():
    m = nn.Embedding(3000, W, sparse=True)
    return train(m, lambda m: m(ri(3000, 8, 16)).mean(), torch.optim.Adagrad)


def embedding_bag():
    m = nn.EmbeddingBag(3000, W, mode="sum")
    return train(m, lambda m: m(ri(3000, 128), torch.arange(0, 128, 8, device="cuda")).mean())


def embedding_bag_mean():
    m = nn.EmbeddingBag(3000, W, mode="mean")
    return train(m, lambda m: m(ri(3000, 16, 8)).mean())


def embedding_bag_max():
    m = nn.EmbeddingBag(3000, W, mode="max")
    return train(m, lambda m: m(ri(3000, 16, 8)).mean())


def embedding_bag_sparse():
    m = nn.EmbeddingBag(3000, W, mode="sum", sparse=True)
    return train(
        m,
        lambda m: m(ri(3000, 128), torch.arange(0, 128, 8, device="cuda")).mean(),
        torch.optim.SparseAdam,
    )


def dlrm():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.ModuleList(nn.EmbeddingBag(500, W, mode="sum", sparse=True) for _ in range(3))
            s.b = nn.Sequential(nn.Linear(13, W), nn.ReLU())
            s.t = nn.Linear(W + 6, 1)

        def forward(s, x, i, o):
            v = [s.b(x)] + [e(k, f) for e, k, f in zip(s.e, i, o)]
            T = torch.stack(v, 1)
            Z = torch.bmm(T, T.transpose(1, 2))
            li, lj = torch.tril_indices(4, 4, -1)
            R = torch.cat([v[0], Z[:, li, lj]], 1)
            return s.t(R)

    m = M().cuda()
    o = [
        torch.optim.SparseAdam(list(m.e.parameters())),
        torch.optim.Adagrad([*m.b.parameters(), *m.t.parameters()]),
    ]

    def step():
        for q in o:
            q.zero_grad()
        loss = F.binary_cross_entropy_with_logits(
            m(
                r(16, 13),
                [ri(500, 64) for _ in range(3)],
                [torch.arange(0, 64, 4, device="cuda")] * 3,
            ),
            torch.rand(16, 1, device="cuda"),
        )
        loss.backward()
        for q in o:
            q.step()
        return loss

    return step


def coo_graph():
    m = nn.Linear(W, W)
    i = ri(200, 2, 900)
    A = torch.sparse_coo_tensor(i, torch.ones(900, device="cuda"), (200, 200)).coalesce()
    return train(m, lambda m: torch.sparse.mm(A, m(r(200, W))).relu().mean())


def coo_spmm_grad():
    w = nn.Parameter(torch.rand(900))
    m = nn.ParameterList([w])
    i = torch.randint(0, 200, (2, 900)).cuda()
    return train(
        m, lambda m: torch.sparse.mm(torch.sparse_coo_tensor(i, m[0], (200, 200)), r(200, W)).mean()
    )


def csr():
    m = nn.Linear(W, W)
    A = torch.eye(200).to_sparse_csr().cuda()
    return train(m, lambda m: (A @ m(r(200, W))).mean())


def to_sparse():
    m = nn.Linear(W, W)

    def f(m):
        A = (r(64, 64) > 1).float().to_sparse()
        return torch.sparse.mm(A, m(r(64, W))).mean()

    return train(m, f)


def gcn_scatter():
    m = nn.Sequential(nn.Linear(W, W), nn.ReLU(), nn.Linear(W, 7))

    def f(m):
        x = r(200, W)
        e = ri(200, 2, 900)
        h = m[0](x)
        agg = torch.zeros_like(h).index_add_(0, e[1], h[e[0]])
        deg = (
            torch.zeros(200, device="cuda")
            .scatter_add_(0, e[1], torch.ones(900, device="cuda"))
            .clamp(min=1)
        )
        h = m[2]((agg / deg[:, None]).relu())
        return F.cross_entropy(h, ri(7, 200))

    return train(m, f)


def gat():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.loss = nn.Linear(W, W)
            s.a = nn.Parameter(torch.randn(2 * W))

        def forward(s, x, e):
            h = s.loss(x)
            sc = F.leaky_relu((torch.cat([h[e[0]], h[e[1]]], -1) * s.a).sum(-1))
            mx = torch.full((200,), -1e9, device="cuda").scatter_reduce(0, e[1], sc, "amax")
            al = (sc - mx[e[1]]).exp()
            den = torch.zeros(200, device="cuda").scatter_add(0, e[1], al)
            al = al / den[e[1]]
            return torch.zeros_like(h).index_add(0, e[1], al[:, None] * h[e[0]])

    return train(M(), lambda m: m(r(200, W), ri(200, 2, 900)).mean())


def packed_lstm():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.loss = nn.LSTM(W, W, 2, batch_first=True, bidirectional=True, dropout=0.1)
            s.o = nn.Linear(2 * W, 5)

        def forward(s, x, n):
            p = nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
            y, (h, c) = s.loss(p)
            y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
            return s.o(y).mean() + h.mean()

    n = torch.tensor([20, 17, 12, 5])
    return train(M(), lambda m: m(r(4, 20, W), n))


def packed_gpu_lengths():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.loss = nn.GRU(W, W, 1, batch_first=True)

        def forward(s, x, n):
            p = nn.utils.rnn.pack_padded_sequence(
                x, n.cpu(), batch_first=True, enforce_sorted=False
            )
            y, h = s.loss(p)
            return nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=20)[0].mean()

    return train(M(), lambda m: m(r(4, 20, W), torch.randint(1, 20, (4,), device="cuda")))


def pack_sequence_rnn():
    m = nn.RNN(W, W, nonlinearity="relu")

    def f(m):
        s = nn.utils.rnn.pack_sequence([r(9, W), r(7, W), r(2, W)])
        y, h = m(s)
        return y.data.mean()

    return train(m, f)


def lstm_proj():
    m = nn.LSTM(W, W, proj_size=8)
    return train(m, lambda m: m(r(10, 4, W))[0].mean())


def rnncells():
    m = nn.ModuleList([nn.LSTMCell(W, W), nn.GRUCell(W, W), nn.RNNCell(W, W)])

    def f(m):
        h = c = g = q = torch.zeros(4, W, device="cuda")
        for _ in range(5):
            x = r(4, W)
            h, c = m[0](x, (h, c))
            g = m[1](h, g)
            q = m[2](g, q)
        return q.mean()

    return train(m, f)


def nested_sdpa():
    m = nn.Linear(W, 3 * W)

    def f(m):
        x = torch.nested.nested_tensor(
            [r(9, W), r(5, W), r(12, W)], layout=torch.jagged, requires_grad=True
        )
        q, k, v = m(x).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        return y.values().mean()

    return train(m, f)


def nested_bf16():
    m = nn.Linear(W, 3 * W)

    def f(m):
        x = torch.nested.nested_tensor([r(9, W), r(5, W), r(12, W)], layout=torch.jagged)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            q, k, v = m(x).chunk(3, -1)
            q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        return y.to_padded_tensor(0.0).float().mean()

    return train(m, f)


def nested_offsets():
    m = nn.Sequential(nn.Linear(W, W), nn.LayerNorm(W), nn.GELU())

    def f(m):
        x = torch.nested.nested_tensor_from_jagged(
            r(26, W), torch.tensor([0, 9, 14, 26], device="cuda")
        )
        return (m(x) + x).values().mean()

    return train(m, f)


def nested_strided():
    m = nn.Linear(W, W)
    return train(
        m,
        lambda m: torch.nested.to_padded_tensor(
            m(torch.nested.nested_tensor([r(9, W), r(5, W)])), 0.0
        ).mean(),
    )


def encoder_padding():
    m = nn.TransformerEncoder(nn.TransformerEncoderLayer(W, 4, 64, batch_first=True), 2)
    mask = torch.zeros(4, 10, dtype=torch.bool)
    mask[1, 5:] = True
    return train(m, lambda m: m(r(4, 10, W), src_key_padding_mask=mask.cuda()).mean())


def encoder_eval():
    m = (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(W, 4, 64, batch_first=True), 2)
        .cuda()
        .eval()
    )
    mask = torch.zeros(4, 10, dtype=torch.bool)
    mask[1, 5:] = True
    loss = nn.Linear(W, 1)

    def f(loss):
        with torch.no_grad():
            h = m(r(4, 10, W), src_key_padding_mask=mask.cuda())
        return loss(h).mean()

    return train(loss, f)


def mha():
    m = nn.MultiheadAttention(
        W, 4, batch_first=True, add_bias_kv=True, add_zero_attn=True, kdim=16, vdim=24
    )
    return train(
        m, lambda m: m(r(4, 10, W), r(4, 6, 16), r(4, 6, 24), average_attn_weights=False)[0].mean()
    )


def transformer():
    m = nn.Transformer(W, 4, 1, 1, 64, batch_first=True)
    return train(
        m,
        lambda m: m(
            r(4, 10, W),
            r(4, 8, W),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(8, device="cuda"),
        ).mean(),
    )
