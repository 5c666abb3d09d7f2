"""Pictures a second of `scaffolding serve` on a GPU, one client beside eight, with models of the size of Stable
Diffusion 2.1 and XL and random weights.

    PYTHONPATH=build/python python benchmarks/gpu/server_clients.py build [--models sd21,sdxl] [--pictures N] [--tiny]

Clients wait for their picture and ask for the next. Rates are those while all of them wait: the first and last pictures
are left out. "of one client": how much more eight get than one; goals on an H200: SD 2.1 at 512 pixels 2, SDXL at 1024
never below 1. --tiny: small networks on whatever device there is, to try it.
"""

import argparse
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks"), str(ROOT / "benchmarks/gpu")]
from client_rate import rate  # noqa: E402
from networks import TINY_UNETS, TINY_VAE, UNETS, VAE  # noqa: E402
from served import Server  # noqa: E402

import scaffolding as sf  # noqa: E402
from scaffolding.diffusion import (  # noqa: E402
    DDIMScheduler,
    EulerDiscreteScheduler,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
)
from scaffolding.models import (  # noqa: E402
    AutoencoderKL,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    UNet2DConditionModel,
)
from scaffolding.tokenizers import CLIPTokenizer  # noqa: E402

TEXT = {
    "sd21": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 23, "num_attention_heads": 16},
    "sdxl": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    "sdxl 2": {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20},
}
TINY_TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES = {"sd21": 512, "sdxl": 1024}
GOALS = {"sd21": 2, "sdxl": 1}


def write_model(kind, folder, tiny):
    """A folder of a pipeline, in bfloat16."""
    place = "cuda" if sf.cuda.is_available() else "cpu"

    def text(name, projection=None):
        config = TINY_TEXT | {"hidden_size": 16 if kind == "sdxl" else 32} if tiny else TEXT[name]
        more = {"projection_dim": projection} if projection else {}
        return (CLIPTextModelWithProjection if projection else CLIPTextModel)(**config, **more)

    unets, scale = (TINY_UNETS if tiny else UNETS), 0.13025 if kind == "sdxl" else 0.18215
    with sf.device(place):
        parts = {
            "unet": UNet2DConditionModel(**unets[kind]),
            "vae": AutoencoderKL(**(TINY_VAE if tiny else VAE), force_upcast=False, scaling_factor=scale),
            "text_encoder": text(kind),
        }
        if kind == "sdxl":
            parts["text_encoder_2"] = text("sdxl 2", 32 if tiny else 1280)
    parts = {name: part.to(sf.bfloat16).eval() for name, part in parts.items()}
    parts["tokenizer"] = CLIPTokenizer.built_in()
    betas = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    if kind == "sdxl":
        pipe = StableDiffusionXLPipeline(
            tokenizer_2=CLIPTokenizer.built_in(), scheduler=EulerDiscreteScheduler(**betas), **parts
        )
    else:
        pipe = StableDiffusionPipeline(scheduler=DDIMScheduler(**betas), **parts)
    pipe.save_pretrained(folder)


def asked(server, kind, size, steps):
    """What client_rate.rate calls for each picture."""

    def ask(seed):
        body = {"model": kind, "prompt": f"a picture of {seed % 5} boats", "num_inference_steps": steps}
        body |= {"size": f"{size}x{size}", "seed": seed}
        status, text, _ = server.post("/v1/images/generations", body, timeout=300)
        if status != 200:
            raise SystemExit(f"server: {status} {str(text)[:300]}")

    return ask


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--models", default="sd21,sdxl")
    parser.add_argument("--pictures", type=int, default=48)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    if not sf.cuda.is_available() and not options.tiny:
        return f"nothing measured: {sf.cuda.why_not()}"
    device = "cuda" if sf.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for kind in options.models.split(","):
            write_model(kind, folder / "models" / kind, options.tiny)
            sf.cuda.empty_cache()
            server = Server(
                options.build, folder / f"data {kind}", "--models", folder / "models", "--device", device, "--dtype",
                "bfloat16", "--no-previews",
            )  # fmt: skip
            size = 64 if options.tiny else SIZES[kind]
            try:
                ask = asked(server, kind, size, options.steps)
                rate(ask, 8, 24)  # loads the model, captures graphs, times calls of 1 to 8
                eight = rate(ask, 8, options.pictures)
                one = rate(ask, 1, max(8, options.pictures // 4))
            finally:
                server.stop()
            print(
                f"{kind}, {size} pixels, {options.steps} steps: one client {one:.2f}, eight {eight:.2f} pictures/s: "
                f"{eight / one:.2f} of one client (goal on an H200 {GOALS[kind]})",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
