"""A training step of CogVideoX and Tora: losses and gradients as PyTorch and diffusers' examples compute them
(tests/golden/make_golden_training_video.py), and training_step of the pipelines.
"""

import json

import numpy as np
import pytest
from folders import GOLDEN
from hashed_weights import hashed, hashed_weight
from model_cases import gradient_row
from tiny_video import save_cogvideox, save_image_to_video, save_tora

import scaffolding as sf
from scaffolding import diffusion, models
from scaffolding.diffusion import cogvideox_loss
from scaffolding.diffusion.pipelines import tora as trajectories
from scaffolding.safetensors.torch import load_file

FILE = json.loads((GOLDEN / "training_video.json").read_text())
CASES = FILE["cases"]


@pytest.fixture(scope="module")
def gradients():
    return load_file(str(GOLDEN / "training_video.safetensors"))


def tensor(name, shape):
    return sf.tensor(hashed(name, tuple(shape)))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_step_is_that_of_pytorch_and_diffusers(gradients, name, checkpointing):
    case = CASES[name]
    cls = models.ToraTransformer3DModel if "video_flow" in case else models.CogVideoXTransformer3DModel
    model = cls(**case["config"]).train()
    model.load_state_dict(
        {
            k: sf.tensor(hashed_weight(k, tuple(t.shape))) if t.dtype.is_floating_point else t
            for k, t in model.state_dict().items()
        }
    )
    if checkpointing:
        model.enable_gradient_checkpointing()
    told = {k: tensor(k, case[k]) for k in ("image_latents", "video_flow") if k in case}
    loss = cogvideox_loss(
        model,
        diffusion.CogVideoXDPMScheduler(**FILE["scheduler"]),
        tensor("latents", FILE["latents"]),
        tensor("text", FILE["text"]),
        noise=tensor("noise", FILE["latents"]),
        timesteps=sf.tensor(FILE["timesteps"]),
        **told,
    )
    assert loss.item() == pytest.approx(case["loss"], rel=1e-5)
    loss.backward()
    want = np.array(gradients[name].tolist())
    parameters = sorted(model.named_parameters())
    assert len(parameters) == len(want)
    for (key, p), row in zip(parameters, want):
        got = gradient_row(key, np.array(p.grad.tolist()) if p.grad is not None else np.zeros(p.shape))
        error = np.abs(got - row).max() / max(row[0], 1e-3)
        assert error < 2e-4, f"{key}: {got} instead of {row}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipelines")
    return {
        "tora": save_tora(folder / "tora"),
        "cogvideox": save_cogvideox(folder / "cogvideox"),
        "image": save_image_to_video(folder / "image"),
    }


def video():
    return sf.tensor(hashed("video", (2, 3, 9, 16, 32)))


def with_gradients(model):
    return {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max().item() > 0}


def test_tora_trains_its_own_parts(folders):
    pipe = diffusion.ToraPipeline.from_pretrained(folders["tora"])
    pipe.transformer.train().set_trainable("tora")
    pipe.transformer.enable_gradient_checkpointing()
    loss = pipe.training_step(video(), ["a", "b"], trajectories=["2,3 30,12", [(5, 5), (9, 9)]])
    loss.backward()
    touched = with_gradients(pipe.transformer)
    assert touched and all(name.startswith(("traj_extractor.", "fuser.")) for name in touched)
    assert not any(p.grad is not None for p in pipe.vae.parameters())
    assert len(touched) > 0.9 * len([p for p in pipe.transformer.parameters() if p.requires_grad])


def test_trajectories_are_their_flow(folders):
    pipe = diffusion.ToraPipeline.from_pretrained(folders["tora"])
    pipe.transformer.eval()
    both = ["2,3 30,12", "9,9 5,5"]
    flow = sf.cat([trajectories.video_flow(t, 9, 16, 32, canvas=(32, 16)) for t in both], 0)
    call = {"noise": sf.tensor(hashed("noise", (2, 3, 4, 4, 8))), "timesteps": sf.tensor([700, 20])}

    def loss(**told):
        told["generator"] = sf.Generator().manual_seed(3)
        return pipe.training_step(video(), ["a", "b"], condition_dropout=0.0, **call, **told).item()

    assert loss(trajectories=both) == loss(video_flow=flow) != loss()
    with pytest.raises(ValueError, match="not both"):
        loss(trajectories=both, video_flow=flow)
    with pytest.raises(ValueError, match="each of the 2 clips"):
        loss(trajectories=["2,3 30,12"])


@pytest.mark.parametrize("kind", ["cogvideox", "image"])
def test_the_whole_transformer_is_trained(folders, kind):
    cls = {"cogvideox": diffusion.CogVideoXPipeline, "image": diffusion.CogVideoXImageToVideoPipeline}[kind]
    pipe = cls.from_pretrained(folders[kind])
    pipe.transformer.train()
    sf.manual_seed(0)
    optimizer = sf.optim.AdamW(pipe.transformer.parameters(), lr=5e-3)
    losses = []
    for _ in range(12):
        loss = pipe.training_step(video(), ["a", "b"], noise=sf.tensor(hashed("noise", (2, 3, 4, 4, 8))),
                                  timesteps=sf.tensor([700, 20]))  # fmt: skip
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_what_a_step_refuses(folders):
    pipe = diffusion.CogVideoXPipeline.from_pretrained(folders["cogvideox"])
    with pytest.raises(ValueError, match="a prompt for each of the 2 clips, got 1"):
        pipe.training_step(video(), ["a"])
    with pytest.raises(ValueError, match="floating numbers"):
        pipe.training_step(video()[0], ["a"])
    with pytest.raises(ValueError, match="one of them"):
        pipe.training_step(video())
    with pytest.raises(ValueError, match="image_latents must be"):
        cogvideox_loss(pipe.transformer, pipe.scheduler, sf.zeros(1, 3, 4, 4, 8), sf.zeros(1, 5, 24),
                       image_latents=sf.zeros(1, 2, 4, 4, 8))  # fmt: skip
