#!/usr/bin/env python3
"""The same work as `llm-in-sandbox-train perf` in plain eager PyTorch, for figures side by side.

A Llama written straight down, a naive generation loop whose cache grows by concatenation, and a training step with
bfloat16 weights, float32 master weights and AdamW. With --context only decode steps are timed: a static batch of
conversations of that length, whose cache is allocated once, as a loop of single kernels and as one CUDA graph; with
--rank also training steps of an adapter, every episode on its own. Prints one JSON object. Needs PyTorch only.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F


class Layer(torch.nn.Module):
    def __init__(self, a):
        super().__init__()
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.heads, self.kv, self.dim = a.heads, a.kv_heads, a.head_dim
        self.q, self.k = linear(a.hidden, a.heads * a.head_dim), linear(a.hidden, a.kv_heads * a.head_dim)
        self.v, self.o = linear(a.hidden, a.kv_heads * a.head_dim), linear(a.heads * a.head_dim, a.hidden)
        self.gate, self.up = linear(a.hidden, a.intermediate), linear(a.hidden, a.intermediate)
        self.down = linear(a.intermediate, a.hidden)
        self.norm1 = torch.nn.RMSNorm(a.hidden, eps=1e-5)
        self.norm2 = torch.nn.RMSNorm(a.hidden, eps=1e-5)

    def forward(self, x, cos, sin, past):
        b, t, _ = x.shape
        h = self.norm1(x)
        split = lambda y, n: y.view(b, t, n, self.dim).transpose(1, 2)
        q, k, v = split(self.q(h), self.heads), split(self.k(h), self.kv), split(self.v(h), self.kv)
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=self.heads != self.kv)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), (k, v)


class Llama(torch.nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.embedding = torch.nn.Embedding(a.vocabulary, a.hidden)
        self.layers = torch.nn.ModuleList(Layer(a) for _ in range(a.layers))
        self.norm = torch.nn.RMSNorm(a.hidden, eps=1e-5)
        for weight in self.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, past=None):
        start = 0 if past is None else past[0][0].shape[2]
        x = self.embedding(tokens)
        half = self.a.head_dim // 2
        speeds = self.a.theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        places = torch.arange(start, start + tokens.shape[1], device=x.device, dtype=torch.float32)
        angles = torch.outer(places, speeds)
        cos = torch.cat([angles.cos()] * 2, 1).to(x.dtype)
        sin = torch.cat([angles.sin()] * 2, 1).to(x.dtype)
        kept = []
        for index, layer in enumerate(self.layers):
            x, cache = layer(x, cos, sin, None if past is None else past[index])
            kept.append(cache)
        return self.norm(x), kept

    def scores(self, x):
        return F.linear(x, self.embedding.weight)


def turn(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def settle(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


@torch.no_grad()
def generate(model, a, device):
    tokens = torch.randint(a.vocabulary, (a.batch, a.prompt), device=device)
    hidden, past = model(tokens)
    replies, logprobs = [], []
    for _ in range(a.reply):
        scores = model.scores(hidden[:, -1]).float()
        chosen = torch.multinomial(scores.softmax(-1), 1)
        logprobs.append(scores.log_softmax(-1).gather(1, chosen))
        replies.append(chosen)
        hidden, past = model(chosen, past)
    torch.cat(replies, 1).cpu(), torch.cat(logprobs, 1).cpu()
    return a.batch * a.reply


class Adapted(torch.nn.Module):
    """A linear layer with an adapter that is not merged."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.a = torch.nn.Linear(base.in_features, rank, bias=False)
        self.b = torch.nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x)) * 4.0


@torch.no_grad()
def decode(model, a, device, kind):
    """Milliseconds of a decode step of `batch` conversations of `context` tokens, launched and in a graph."""
    for layer in model.layers if a.rank else []:
        for name in ("q", "k", "v", "o", "gate", "up", "down"):
            setattr(layer, name, Adapted(getattr(layer, name), a.rank).to(device, kind))
    caches = [torch.randn(2, a.batch, a.kv_heads, a.context, a.head_dim, device=device, dtype=kind) for _ in model.layers]
    tokens = torch.randint(a.vocabulary, (a.batch, 1), device=device)
    half = a.head_dim // 2
    speeds = a.theta ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
    angles = torch.outer(torch.full((1,), a.context - 1.0, device=device), speeds)
    cos, sin = torch.cat([angles.cos()] * 2, 1).to(kind), torch.cat([angles.sin()] * 2, 1).to(kind)

    def step():
        x = model.embedding(tokens)
        for layer, cache in zip(model.layers, caches):
            h = layer.norm1(x)
            split = lambda y, n: y.view(a.batch, 1, n, a.head_dim).transpose(1, 2)
            q, k, v = split(layer.q(h), a.heads), split(layer.k(h), a.kv_heads), split(layer.v(h), a.kv_heads)
            cache[0][:, :, -1:] = turn(k, cos, sin)
            cache[1][:, :, -1:] = v
            # Heads that share keys are rows, so that keys are read once.
            q = turn(q, cos, sin).view(a.batch, a.kv_heads, -1, a.head_dim)
            y = F.scaled_dot_product_attention(q, cache[0], cache[1])
            x = x + layer.o(y.reshape(a.batch, 1, -1))
            h = layer.norm2(x)
            x = x + layer.down(F.silu(layer.gate(h)) * layer.up(h))
        scores = model.scores(model.norm(x)[:, 0]).float()
        chosen = torch.multinomial(scores.softmax(-1), 1)
        return chosen, scores.log_softmax(-1).gather(1, chosen)

    result = {"eager_step_ms": timed(step, 3, 20, device) * 1e3}
    if device.startswith("cuda"):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        result["graph_step_ms"] = timed(graph.replay, 3, 20, device) * 1e3
    return result


def learn(model, a, device):
    """Seconds of a training step of the adapter: episodes of `context` tokens, of which the second half has some to train."""
    adapters = [weight for name, weight in model.named_parameters() if ".a." in name or ".b." in name]
    model.requires_grad_(False)
    for weight in adapters:
        weight.requires_grad_(True)
    optimiser = torch.optim.AdamW(adapters, lr=1e-6)
    tokens = torch.randint(a.vocabulary, (a.episodes, a.context), device=device)
    trained = torch.arange(a.context // 2, a.context, device=device)
    trained = trained[trained % a.sampled == 0]

    def step():
        for part in tokens.split(8):
            hidden, _ = model(part)
            scores = model.scores(hidden[:, trained - 1]).float()
            F.cross_entropy(scores.flatten(0, 1), part[:, trained].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(adapters, 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return timed(step, 1, a.train_steps, device)


def trainer(model, a, device):
    masters = [weight.detach().float().clone().requires_grad_() for weight in model.parameters()]
    optimiser = torch.optim.AdamW(masters, lr=1e-6, betas=(0.9, 0.999), weight_decay=0.01)
    tokens = torch.randint(a.vocabulary, (a.train_batch, a.train_length), device=device)

    def step():
        hidden, _ = model(tokens)
        scores = model.scores(hidden[:, :-1]).float()
        loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        for master, weight in zip(masters, model.parameters()):
            master.grad, weight.grad = weight.grad.float(), None
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimiser.step()
        with torch.no_grad():
            for master, weight in zip(masters, model.parameters()):
                weight.copy_(master)

    return step


def timed(work, warm_up, times, device):
    for _ in range(warm_up):
        work()
    settle(device)
    begun = time.perf_counter()
    for _ in range(times):
        work()
    settle(device)
    return (time.perf_counter() - begun) / times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    numbers = dict(hidden=576, layers=30, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocabulary=49152)
    numbers |= dict(context=0, rank=0, episodes=0, sampled=1)
    numbers |= dict(batch=64, prompt=128, reply=256, train_batch=8, train_length=1024, train_steps=10)
    for name, value in numbers.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    parser.add_argument("--theta", type=float, default=100000.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = parser.parse_args()
    torch.manual_seed(0)
    kind = torch.bfloat16 if a.device.startswith("cuda") else torch.float32
    with torch.device(a.device):
        model = Llama(a).to(kind)
    if a.context:
        result = {"torch": torch.__version__} | decode(model, a, a.device, kind)
        if a.rank and a.episodes:
            result["learning_step_s"] = learn(model, a, a.device)
        print(json.dumps(result))
        return
    seconds = timed(lambda: generate(model, a, a.device), 1, 1, a.device)
    result = {"torch": torch.__version__, "device": a.device, "kind": str(kind)}
    result["generation_tokens_per_s"] = a.batch * a.reply / seconds
    seconds = timed(trainer(model, a, a.device), 3, a.train_steps, a.device)
    result["training_tokens_per_s"] = a.train_batch * a.train_length / seconds
    print(json.dumps(result))


if __name__ == "__main__":
    main()
