"""VideoProcessor: clips to an autoencoder's tensors and back, as diffusers'."""

from ... import _core
from .image_processor import VaeImageProcessor, picture_of, pil_of


def _is_clip(value):
    """Whether it is one clip, and not a list of them: pictures, or one array or tensor of them."""
    if isinstance(value, (list, tuple)):
        return bool(value) and (picture_of(value[0]) is not None or getattr(value[0], "ndim", 0) == 3)
    return getattr(value, "ndim", 0) == 4


class VideoProcessor(VaeImageProcessor):
    """VaeImageProcessor for clips: lists of pictures, arrays [T, H, W, C] and tensors [T, C, H, W]; one or a list, or
    an array or tensor with a further dimension in front.

    >>> clip = sf.diffusion.VideoProcessor().preprocess_video(sf.zeros(5, 3, 32, 48, dtype=sf.uint8))
    >>> clip.shape
    scaffolding.Size([1, 3, 5, 32, 48])
    """

    def preprocess_video(self, video, height=None, width=None, **kwargs):
        """float32 [B, C, T, height, width] in [-1, 1]. ValueError for what is no clip, and for clips that make no
        batch."""
        clips = [video] if _is_clip(video) else list(video)
        if not clips or not all(_is_clip(clip) for clip in clips):
            raise ValueError(
                "VideoProcessor: video must be a clip (pictures, an array [T, H, W, C] or a tensor [T, C, H, W]) or a "
                "list of clips"
            )
        made = [self.preprocess(clip, height=height, width=width, **kwargs) for clip in clips]
        if len({tuple(clip.shape) for clip in made}) > 1:
            shapes = ", ".join(str(tuple(clip.shape)) for clip in made)
            raise ValueError(f"VideoProcessor: clips must have one size and number of frames, got {shapes}")
        return _core.stack(made, 0).permute(0, 2, 1, 3, 4)

    def postprocess_video(self, video, output_type="np"):
        """Clips of an autoencoder's output [B, C, T, H, W] in [-1, 1]: see frames_from_unit_range; "latent" as it
        is."""
        if output_type == "latent":
            return video
        return self.frames_from_unit_range(self.denormalize(video.permute(0, 2, 1, 3, 4)), output_type)

    @staticmethod
    def frames_from_bytes(clips, output_type):
        """Clips whose frames are uint8 tensors [H, W, C] as the type asked for, "sf_tensor" or "pil"; each tensor
        leaves its list when it becomes a picture."""
        if output_type == "sf_tensor":
            return clips
        return [[pil_of(clip.pop(0).permute(2, 0, 1).cpu()) for _ in range(len(clip))] for clip in clips]

    def frames_from_unit_range(self, video, output_type):
        """Values [B, T, C, H, W] in [0, 1] as the type asked for: "pil", a list of pictures for each clip; "np", an
        array [B, T, H, W, C]; "pt", the tensor; "sf_tensor", for each clip a list of uint8 tensors [H, W, C] on the
        video's device; "latent", as they are."""
        if output_type in ("pt", "latent"):
            return video
        if output_type == "np":
            import numpy as np

            return np.stack([self.from_unit_range(clip, "np") for clip in video])
        if output_type == "sf_tensor":  # frame by frame: no second clip in float32
            return [[self.from_unit_range(clip[t : t + 1], "sf_tensor")[0] for t in range(len(clip))] for clip in video]
        return [self.from_unit_range(clip, output_type) for clip in video]
