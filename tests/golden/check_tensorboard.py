"""Reads a run's event files with TensorBoard itself and compares them with metrics.jsonl (needs the package
tensorboard):

python check_tensorboard.py make <folder>      # with Scaffolding: a run, and its continuation
python check_tensorboard.py read <folder>      # with a Python that has tensorboard
"""

import json
import pathlib
import sys


def make(folder):
    import scaffolding as sf
    from scaffolding import nn
    from scaffolding.train import Trainer
    from scaffolding.utils.data import DataLoader, TensorDataset

    def picture(trainer):
        if trainer.step == 2:
            trainer.tensorboard.add_image("picture", sf.rand(3, 8, 12), 2)

    for max_steps, stop_at in ((12, 7), (12, None)):
        sf.manual_seed(0)
        net = nn.Linear(4, 1)
        loader = DataLoader(TensorDataset(sf.randn(20, 4), sf.randn(20, 1)), batch_size=4)
        trainer = Trainer(
            net,
            sf.optim.SGD(net.parameters(), lr=0.1),
            loader,
            lambda b, net=net: nn.functional.mse_loss(net(b[0]), b[1]),
            folder,
            max_steps=max_steps,
            checkpointing_steps=5,
            logging_steps=1,
            evaluate=lambda: {"constant": 2.5},
            eval_steps=4,
            resume="latest",
            on_step_end=lambda t, stop_at=stop_at: (picture(t), 1 / 0 if t.step == stop_at else 0),
        )
        try:
            trainer.fit()
        except ZeroDivisionError:
            print("broke off at step", trainer.step)


def read(folder):
    import tensorboard
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "logs")).Reload()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "lr", "grad_norm", "samples_per_second"):
        found = [(e.step, e.value) for e in events.Scalars(f"train/{name}")]
        assert [step for step, _ in found] == [line["step"] for line in lines], found
        assert all(abs(value - line[name]) <= 1e-6 * abs(line[name]) for (_, value), line in zip(found, lines)), name
    assert [(e.step, e.value) for e in events.Scalars("eval/constant")] == [(4, 2.5), (8, 2.5), (12, 2.5)]
    (image,) = events.Images("picture")
    assert (image.step, image.width, image.height) == (2, 12, 8) and image.encoded_image_string[1:4] == b"PNG"
    print(f"tensorboard {tensorboard.__version__} reads {len(lines)} steps, each once, and the picture")


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](pathlib.Path(sys.argv[2]))
