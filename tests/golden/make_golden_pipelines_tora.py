"""Golden files of ToraPipeline and ToraImageToVideoPipeline. diffusers has no such classes: they are its CogVideoX
pipelines here, with tora_twin.py's transformer and the flow of tests/python/diffusion/tora_reference.py.

    python tests/golden/make_golden_pipelines_tora.py     # a Python that has torch, diffusers and transformers
"""

import contextlib
import inspect
import pathlib
import sys

import numpy as np
import torch
from diffusers import (
    AutoencoderKLCogVideoX,
    CogVideoXDPMScheduler,
    CogVideoXImageToVideoPipeline,
    CogVideoXPipeline,
)
from pipeline_fixture import PipelineFixture
from tora_twin import ToraTransformer3DModel as Twin
from transformers import T5EncoderModel, T5Tokenizer

sys.path.append(str(pathlib.Path(__file__).parent.parent / "python" / "diffusion"))
import tora_reference as reference  # noqa: E402

TEXT = {"vocab_size": 235, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4,
        "feed_forward_proj": "gated-gelu"}  # fmt: skip
TRANSFORMER = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4,
               "time_embed_dim": 8, "text_embed_dim": 24, "num_layers": 2, "sample_width": 8, "sample_height": 4,
               "sample_frames": 9, "max_text_seq_length": 16, "use_rotary_positional_embeddings": True,
               "flow_in_channels": 4, "flow_channels": 8}  # fmt: skip
VAE = {"down_block_types": ["CogVideoXDownBlock3D"] * 3, "up_block_types": ["CogVideoXUpBlock3D"] * 3,
       "block_out_channels": [8, 8, 16], "latent_channels": 4, "layers_per_block": 1, "norm_num_groups": 4,
       "sample_height": 96, "sample_width": 160, "scaling_factor": 0.7}  # fmt: skip
PUBLISHED = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "clip_sample": False,
             "prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "set_alpha_to_one": True,
             "timestep_spacing": "trailing", "snr_shift_scale": 1.0}  # fmt: skip
CALL = {
    "prompt": "a cat and two dogs",
    "num_inference_steps": 3,
    "height": 16,
    "width": 32,
    "num_frames": 9,
    "max_sequence_length": 16,
}


class ToraTransformer3DModel(Twin):
    """What a pipeline wants of it besides."""

    flow = None
    config = property(lambda self: self.base.config)
    dtype = property(lambda self: self.base.dtype)
    device = property(lambda self: self.base.device)

    def cache_context(self, name):
        return contextlib.nullcontext()

    def forward(self, hidden_states, *arguments, **keywords):
        flow = self.flow if self.flow is None else self.flow.expand(len(hidden_states), -1, -1, -1, -1)
        return super().forward(hidden_states, *arguments, video_flow=flow, **keywords)


def clip_of(trajectories, frames, height, width):
    points = [[tuple(map(float, p.split(","))) for p in t.split()] for t in trajectories.split(";")]
    flow = reference.flow(points, frames, height, width, canvas=(width, height))
    colours = np.floor(reference.levels(np.moveaxis(flow, -1, 1)))
    return torch.from_numpy(colours / 127.5 - 1).float()[None]


def steered(cls):
    """A pipeline of diffusers that encodes a flow, and tells the transformer of it: before the noise is drawn, as
    Tora's own pipeline does; after it where the clip begins with a picture."""

    class Steered(cls):
        def prepare_latents(self, *arguments, **keywords):
            if cls is CogVideoXPipeline:
                self.draw_flow()
            out = super().prepare_latents(*arguments, **keywords)
            if cls is CogVideoXImageToVideoPipeline:
                self.draw_flow()
            return out

        def draw_flow(self):
            self.transformer.flow = None
            if self.clip is not None:
                posterior = self.vae.encode(self.clip.permute(0, 2, 1, 3, 4)).latent_dist
                latents = posterior.sample(self.drawn_by).permute(0, 2, 1, 3, 4)
                self.transformer.flow = self.vae.config.scaling_factor * latents

        def __call__(self, *arguments, video_flow=None, trajectories=None, generator=None, **keywords):
            self.clip = video_flow
            if trajectories is not None:
                self.clip = clip_of(trajectories, *(keywords[n] for n in ("num_frames", "height", "width")))
            self.drawn_by = generator[0] if isinstance(generator, list) else generator
            return super().__call__(*arguments, generator=generator, **keywords)

    theirs = inspect.signature(cls.__call__)
    own = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in ("video_flow", "trajectories")]
    Steered.__call__.__signature__ = theirs.replace(parameters=[*theirs.parameters.values(), *own])
    Steered.__init__.__signature__ = inspect.signature(cls.__init__)
    Steered.__name__ = cls.__name__.replace("CogVideoX", "Tora")
    return Steered


ToraPipeline, ToraImageToVideoPipeline = steered(CogVideoXPipeline), steered(CogVideoXImageToVideoPipeline)
fixture = PipelineFixture("tora")
fixture.network("text", T5EncoderModel, TEXT)
fixture.network("transformer", ToraTransformer3DModel, TRANSFORMER)
learned = {"in_channels": 8, "use_learned_positional_embeddings": True, "max_text_seq_length": 226}
fixture.network("image", ToraTransformer3DModel, {**TRANSFORMER, **learned})
fixture.network("vae", AutoencoderKLCogVideoX, VAE)
fixture.tokenizer("pixart_tokenizer", T5Tokenizer)
fixture.scheduler("dpm", CogVideoXDPMScheduler, PUBLISHED)
ours = "as the other pipelines have it"
place = "second, as Tora's authors have it"
differences = {
    "__init__": dict.fromkeys(("num_frames", "latent_channels"), "as CogVideoXPipeline has them"),
    "__call__": {"guidance_mode": ours, "video_flow": place},
}
begins = {
    "image": "the call asks for it by name where it is absent",
    "num_frames": "None is what the transformer was trained on, as in ToraPipeline",
}
fixture.pipeline(ToraPipeline, differences=differences)
fixture.pipeline(
    ToraImageToVideoPipeline, differences={**differences, "__call__": {**differences["__call__"], **begins}}
)


def case(name, call, seed=0):
    image = "image" in call
    parts = {
        "tokenizer": "pixart_tokenizer",
        "text_encoder": "text",
        "vae": "vae",
        "transformer": "image" if image else "transformer",
        "scheduler": "dpm",
    }
    cls = ToraImageToVideoPipeline if image else ToraPipeline
    fixture.case(f"tora_{name}", cls, parts, call, seed=seed)


case("trajectory", {**CALL, "trajectories": "3,4 20,12 28,5"})
case("without", CALL)
case("two_trajectories", {**CALL, "trajectories": "3,4 20,12 28,5; 30,2 4,14", "use_dynamic_cfg": True})
case("flow", {**CALL, "video_flow": {"floats": [1, 9, 3, 16, 32]}})
case("no_guidance", {**CALL, "trajectories": "3,4 20,12", "guidance_scale": 1.0, "num_frames": 1})
case("latents", {**CALL, "trajectories": "3,4 20,12", "output_type": "latent"})
case("two", {**CALL, "prompt": ["a cat", "stars at night"], "trajectories": "3,4 20,12"}, seed=[3, 4])
begin = {"image": {"picture": [16, 32]}, **{k: v for k, v in CALL.items() if k != "max_sequence_length"}}
case("image", {**begin, "trajectories": "3,4 20,12 28,5"})
case("image_without", begin)
for entry in fixture.document["pipelines"].values():
    entry["index"]["transformer"][0] = "diffusers"  # whose files it has; here it is this script's
fixture.write()
