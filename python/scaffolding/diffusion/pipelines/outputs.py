"""What pipelines return."""

from ... import _core
from ..._core import Tensor
from ...models.outputs import output

StableDiffusionPipelineOutput = output(
    "StableDiffusionPipelineOutput",
    "images",
    "nsfw_content_detected",
    doc=(
        "images: a list of PIL pictures, an array [B, H, W, 3], or a tensor; nsfw_content_detected: None, pictures "
        "are not checked."
    ),
)
ImagePipelineOutput = output(
    "ImagePipelineOutput", "images", doc="images: a list of PIL pictures, an array [B, H, W, 3], or a tensor."
)
StableDiffusionXLPipelineOutput = output(
    "StableDiffusionXLPipelineOutput",
    "images",
    doc="images: a list of PIL pictures, an array [B, H, W, 3], or a tensor.",
)
ZImagePipelineOutput = output(
    "ZImagePipelineOutput", "images", doc="images: a list of PIL pictures, an array [B, H, W, 3], or a tensor."
)
VideoPipelineOutput = output(
    "VideoPipelineOutput",
    "frames",
    doc=(
        "frames: for each clip a list of PIL pictures or of tensors [H, W, 3], an array [B, T, H, W, 3], or a tensor "
        "[B, T, 3, H, W]."
    ),
)
LTX2PipelineOutput = output(
    "LTX2PipelineOutput",
    "frames",
    "audio",
    doc=(
        "frames: for each clip a list of PIL pictures or of tensors [H, W, 3], an array [B, T, H, W, 3], or a tensor "
        "[B, T, 3, H, W]. audio: their sound [B, channels, samples] about -1 to 1, at "
        "pipe.vocoder.config.output_sampling_rate; None of a pipeline without a vocoder."
    ),
)
for _cls in (
    ImagePipelineOutput,
    LTX2PipelineOutput,
    StableDiffusionPipelineOutput,
    StableDiffusionXLPipelineOutput,
    VideoPipelineOutput,
    ZImagePipelineOutput,
):
    _cls.__module__ = __name__


class ImageTensor(Tensor):
    """Pictures [B, 3, H, W] in [0, 1]: what a pipeline without text encoder returns,
    a tensor that is its own `.images`.
    """

    nsfw_content_detected = None

    def __new__(cls, data):
        return _core._make_subclass(cls, data, False, False)

    @property
    def images(self):
        """The tensor itself, as pipelines' outputs have it."""
        return self
