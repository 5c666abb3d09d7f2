"""A decoder-only transformer on characters, as one would write it against torch: pre-norm blocks, fused
query/key/value, a head tied to the embedding.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = (
    "The first rule of building is to know what stands on what. A beam rests on two posts, a floor rests on its beams, "
    "and the roof rests on the walls. "
    "Take one away and the others tell you how much it carried. So it is with programs: write the part that carries, "
    "try it, and only then the part above.\n"
)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(b, t, c))


class MLP(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.fc = nn.Linear(width, 4 * width)
        self.act = nn.GELU(approximate="tanh")
        self.proj = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.proj(self.act(self.fc(x))))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = MLP(width, dropout)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary, context=32, width=64, heads=4, layers=3, dropout=0.0):
        super().__init__()
        self.context = context
        self.body = nn.ModuleDict(
            {
                "tokens": nn.Embedding(vocabulary, width),
                "positions": nn.Embedding(context, width),
                "drop": nn.Dropout(dropout),
                "blocks": nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)]),
                "norm": nn.LayerNorm(width),
            }
        )
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.body["tokens"].weight = self.head.weight
        self.apply(self._init_weights)
        for name, p in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * layers))

    @staticmethod
    def _init_weights(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, targets=None):
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.body.drop(self.body.tokens(tokens) + self.body.positions(positions))
        for block in self.body.blocks:
            x = block(x)
        logits = self.head(self.body.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, tokens, count, temperature=1.0, top_k=None):
        for _ in range(count):
            logits, _ = self(tokens[:, -self.context :])
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                values, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < values[:, [-1]]] = -float("inf")
            chosen = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            tokens = torch.cat((tokens, chosen), dim=1)
        return tokens


def main(steps=20, batch=8):
    torch.manual_seed(1337)
    alphabet = sorted(set(TEXT))
    data = torch.tensor([alphabet.index(c) for c in TEXT], dtype=torch.long)
    model = Transformer(len(alphabet))
    start = {name: p.double().abs().sum().item() for name, p in model.state_dict().items()}
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 5) * 0.5 * (1 + math.cos(math.pi * step / steps))
    )

    losses, norms = [], []
    model.train()
    for _ in range(steps):
        at = torch.randint(len(data) - model.context, (batch,))
        x = torch.stack([data[i : i + model.context] for i in at])
        y = torch.stack([data[i + 1 : i + 1 + model.context] for i in at])
        _, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    text = model.generate(data[:8].unsqueeze(0), 16, temperature=0.8, top_k=5)
    return {
        "start": start,
        "losses": losses,
        "norms": norms,
        "generated": text[0].tolist(),
        "rate": schedule.get_last_lr()[0],
    }


if __name__ == "__main__":
    print(main())
