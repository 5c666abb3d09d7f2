"""The programs in examples/ run, and learn something."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


def run(*command):
    # One thread: the networks are small, and what they learn is the same on every machine.
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, env=os.environ | {"SF_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_train_digits(tmp_path):
    pytest.importorskip("scaffolding")
    shown = run(sys.executable, EXAMPLES / "train_digits.py", tmp_path)
    assert float(re.search(r"400 steps, best accuracy ([\d.]+)", shown)[1]) > 0.9, shown
    assert (tmp_path / "checkpoint-400").is_dir() and (tmp_path / "metrics.jsonl").exists()


def test_train_text_to_video(tmp_path):
    pytest.importorskip("scaffolding")
    sizes = ("--steps", "40", "--frames", "3", "--size", "8", "--channels", "8")
    shown = run(sys.executable, EXAMPLES / "train_text_to_video.py", tmp_path, *sizes)
    before, after = (float(x) for x in re.search(r"40 steps, loss ([\d.]+) to ([\d.]+)", shown).groups())
    assert after < 0.8 * before, shown
    assert (tmp_path / "pipeline" / "model_index.json").exists() and len(list((tmp_path / "frames").iterdir())) == 3


def test_train_mlp(build_dir, tmp_path):
    program = build_dir / "examples" / "train_mlp"
    if not program.exists():
        pytest.skip(f"{program} is not built: -DSF_BUILD_EXAMPLES=ON")
    assert re.search(r"1920 steps, mean squared error", run(program, tmp_path))
    assert (tmp_path / "checkpoint-1920").is_dir()


def train_mlp_in_python(sf, folder, end=None):
    """examples/train_mlp.cpp; stops after step `end`."""
    from scaffolding import nn
    from scaffolding.utils.data import DataLoader, TensorDataset

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(2, 64), nn.Linear(64, 64), nn.Linear(64, 1)

        def forward(self, x):
            return self.last(sf.silu(self.second(sf.silu(self.first(x)))))

    def surface(points):
        return sf.sin(points[:, :1] * 3.0) * sf.cos(points[:, 1:] * 2.0)

    sf.manual_seed(0)
    points, unseen = sf.rand(2048, 2) * 2.0 - 1.0, sf.rand(512, 2) * 2.0 - 1.0
    net = Mlp()
    loader = DataLoader(TensorDataset(points, surface(points)), batch_size=64, shuffle=True)
    optimizer = sf.optim.AdamW(net.parameters(), lr=3e-3)
    trainer = sf.train.Trainer(
        net, optimizer, loader, lambda batch: nn.functional.mse_loss(net(batch[0]), batch[1]), folder, max_epochs=60,
        max_grad_norm=1.0, scheduler=sf.optim.get_scheduler("cosine", optimizer, num_warmup_steps=20,
                                                            num_training_steps=60 * len(loader)),
        ema=sf.optim.EMAModel(net.parameters(), decay=0.98), eval_steps=5 * len(loader),
        evaluate=lambda: {"error": nn.functional.mse_loss(net(unseen), surface(unseen)).item()},
        resume="latest", on_step_end=lambda t: t.stop() if t.step == end else None, quiet=True,
    )  # fmt: skip
    return trainer.fit()


def test_a_run_goes_on_in_the_other_language(build_dir, tmp_path):
    sf = pytest.importorskip("scaffolding")
    program = build_dir / "examples" / "train_mlp"
    if not program.exists():
        pytest.skip(f"{program} is not built: -DSF_BUILD_EXAMPLES=ON")
    threads = sf.get_num_threads()
    sf.set_num_threads(1)
    try:
        run(program, tmp_path / "whole")
        assert train_mlp_in_python(sf, tmp_path / "python first", end=700).step == 700
        run(program, tmp_path / "python first")

        interrupted = subprocess.Popen(
            [program, tmp_path / "c++ first"], env=os.environ | {"SF_NUM_THREADS": "1"}, stderr=subprocess.PIPE
        )
        while interrupted.poll() is None and not (tmp_path / "c++ first" / "checkpoint-500").is_dir():
            time.sleep(0.01)
        interrupted.send_signal(signal.SIGINT)
        interrupted.communicate()
        steps = max(int(folder.name.split("-")[1]) for folder in (tmp_path / "c++ first").glob("checkpoint-*"))
        assert 500 <= steps < 1920
        assert train_mlp_in_python(sf, tmp_path / "c++ first").step == 1920
    finally:
        sf.set_num_threads(threads)
    for folder in ("python first", "c++ first"):
        for file in ("model.safetensors", "ema.safetensors"):
            got, whole = (sf.load(tmp_path / run_of / "checkpoint-1920" / file) for run_of in (folder, "whole"))
            assert {k: v.tolist() for k, v in got.items()} == {k: v.tolist() for k, v in whole.items()}, (folder, file)


def tiny_model(sf, folder):
    """A Stable Diffusion folder with random weights that trains in seconds."""
    from scaffolding.diffusion import DDPMScheduler
    from scaffolding.models import AutoencoderKL, CLIPTextModel, UNet2DConditionModel

    sf.manual_seed(0)
    tokenizer = sf.tokenizers.train_bpe(["a red square on white", "a blue square on black"], vocab_size=530)
    tokenizer.save_pretrained(folder / "tokenizer")
    CLIPTextModel(
        vocab_size=530, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=16, eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.bos_token_id,
    ).save_pretrained(folder / "text_encoder")  # fmt: skip
    AutoencoderKL(
        block_out_channels=[8, 16], down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2, norm_num_groups=4, sample_size=16
    ).save_pretrained(folder / "vae")  # fmt: skip
    UNet2DConditionModel(
        sample_size=8, block_out_channels=[16, 32], layers_per_block=1, norm_num_groups=8,
        down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"], up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"],
        cross_attention_dim=32, attention_head_dim=2,
    ).save_pretrained(folder / "unet")  # fmt: skip
    DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear").save_config(folder / "scheduler")


def captioned_squares(sf, folder):
    folder.mkdir()
    lines = []
    for i in range(12):
        picture = sf.zeros(3, 20, 24, dtype=sf.uint8) + 255 * (i % 2)
        picture[2 * (i % 2), 4:12, i : i + 8] = 255 * (1 - i % 2)
        sf.data.write_image(str(folder / f"{i}.png"), picture)
        lines.append(
            json.dumps({"file_name": f"{i}.png", "text": ["a blue square on black", "a red square on white"][i % 2]})
        )
    (folder / "metadata.jsonl").write_text("\n".join(lines))


def test_train_text_to_image(build_dir, tmp_path):
    sf = pytest.importorskip("scaffolding")
    tiny_model(sf, tmp_path / "model")
    captioned_squares(sf, tmp_path / "pictures")
    command = [tmp_path / "model", tmp_path / "pictures"]
    options = [
        "--resolution",
        16,
        "--max_train_steps",
        12,
        "--learning_rate",
        1e-3,
        "--snr_gamma",
        5,
        "--noise_offset",
        0.05,
    ]
    before = sf.models.UNet2DConditionModel.from_pretrained(tmp_path / "model", subfolder="unet")

    def check(shown, output):
        assert re.search(r"12 steps on 12 pictures, last loss \d", shown), shown
        after = sf.models.UNet2DConditionModel.from_pretrained(output / "unet")
        assert any(not sf.equal(a, b) for a, b in zip(before.parameters(), after.parameters()))
        rows = sf.data.CachedRows(output / "latents")
        assert (
            len(rows) == 12
            and rows[0]["latents"].shape == (4, 8, 8)
            and rows[0]["encoder_hidden_states"].shape == (16, 32)
        )
        assert (output / "checkpoint-12").is_dir()

    python = [sys.executable, EXAMPLES / "train_text_to_image.py", *command]
    check(run(*python, tmp_path / "a", *options, "--ema_decay", 0.9, "--gradient_checkpointing"), tmp_path / "a")
    run(*python, tmp_path / "a", *options, "--ema_decay", 0.9)  # goes on from the end: nothing is left to do
    shown = run(
        *python, tmp_path / "flow", *options[:4], "--prediction_type", "flow_prediction", "--mixed_precision", "bf16"
    )
    check(shown, tmp_path / "flow")

    program = build_dir / "examples" / "train_text_to_image"
    if program.exists():
        check(run(program, *command, tmp_path / "c", 16, 12, 1e-3), tmp_path / "c")
