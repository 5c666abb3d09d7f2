"""Trains a small convolutional network to read digits that the program draws itself: a 5x7 font, shifted and covered
with noise.

    python examples/train_digits.py [output_dir]

With an output_dir, Ctrl-C saves and the next call goes on; `tensorboard --logdir output_dir` shows the curves.
"""

import sys

import scaffolding as sf
from scaffolding import nn
from scaffolding.train import Trainer
from scaffolding.utils.data import DataLoader, TensorDataset

# Seven rows of five pixels for each digit, a bit for each pixel.
FONT = [
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
]
GLYPHS = sf.tensor([[[float(bit) for bit in row] for row in glyph.split()] for glyph in FONT])  # [10, 7, 5]


def digits(count, seed):
    """count pictures [count, 1, 9, 7] and what they show."""
    generator = sf.Generator().manual_seed(seed)
    places = [(top, left) for top in range(3) for left in range(3)]
    clean = sf.zeros(10, len(places), 1, 9, 7)
    for i, (top, left) in enumerate(places):
        clean[:, i, 0, top : top + 7, left : left + 5] = GLYPHS
    labels = sf.randint(0, 10, (count,), generator=generator)
    pictures = clean[labels, sf.randint(0, len(places), (count,), generator=generator)]
    return pictures + 0.3 * sf.randn(count, 1, 9, 7, generator=generator), labels


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(32 * 3 * 2, 10)

    def forward(self, x):
        x = nn.functional.silu(self.conv1(x))
        x = nn.functional.silu(self.conv2(x))
        return self.out(self.drop(x.flatten(1)))


def main():
    sf.manual_seed(0)
    net = Net()
    loader = DataLoader(TensorDataset(*digits(2000, seed=1)), batch_size=50, shuffle=True)
    pictures, labels = digits(500, seed=2)
    optimizer = sf.optim.AdamW(net.parameters(), lr=1e-2)
    trainer = Trainer(
        net,
        optimizer,
        loader,
        lambda batch: nn.functional.cross_entropy(net(batch[0]), batch[1]),
        sys.argv[1] if len(sys.argv) > 1 else None,
        max_epochs=10,
        scheduler=sf.optim.get_scheduler("cosine", optimizer, num_warmup_steps=20, num_training_steps=10 * len(loader)),
        ema=sf.optim.EMAModel(net.parameters(), decay=0.9),
        evaluate=lambda: {"accuracy": (net(pictures).argmax(1) == labels).to(sf.float32).mean().item()},
        eval_steps=len(loader),
        seed=0,
        resume="latest" if len(sys.argv) > 1 else None,
    )
    result = trainer.fit()
    print(f"{result.step} steps, best accuracy {trainer.best['accuracy']['highest']:.3f} on digits it has not seen")


if __name__ == "__main__":
    main()
