"""Text to small videos: a tokenizer without a vocabulary, a text encoder, denoisers over videos [B, C, T, H, W], and
the pipeline that trains and samples them.

>>> from scaffolding.nn.video import TextToVideoPipeline
>>> pipeline = TextToVideoPipeline(num_frames=16, frame_height=64, frame_width=64)
>>> loss = pipeline.training_step(video, prompts)
>>> video = pipeline.generate(prompt="a cat walking on grass")

The networks are models of scaffolding.models, the schedulers those of scaffolding.diffusion: a cosine schedule is
`DDPMScheduler(beta_schedule="squaredcos_cap_v2")`, a linear one "linear".
"""

from ...diffusion.schedulers import DDIMScheduler, DDPMScheduler
from ...models.video import (
    ResBlock3D,
    SimpleUNet3D,
    SpatialTemporalAttention,
    TextEncoder,
    UNet3D,
    VideoDecoder,
    VideoEncoder,
)
from ...models.video import VideoTimestepEmbedding as TimestepEmbedding  # a UNet's has the plain name
from ...tokenizers import TextTokenizer
from .frames import save_video_frames
from .pipeline import TextToVideoPipeline
from ..._documents import describe as _describe
from ..._missing import help_modules

__all__ = [
    "DDIMScheduler",
    "DDPMScheduler",
    "ResBlock3D",
    "SimpleUNet3D",
    "SpatialTemporalAttention",
    "TextEncoder",
    "TextToVideoPipeline",
    "TextTokenizer",
    "TimestepEmbedding",
    "UNet3D",
    "VideoDecoder",
    "VideoEncoder",
    "save_video_frames",
]

_describe(globals())
help_modules()  # this one is imported after the others
