"""Networks that enlarge pictures, under Real-ESRGAN's names, and pictures enlarged by them."""

import os

from .._core import _models, uint8
from .._core import tensor as _tensor
from .modeling import MODEL_CLASSES, ModelMixin, model_class


@model_class
class RRDBNet(ModelMixin):
    """ESRGAN's and Real-ESRGAN's network: pictures [B, num_in_ch, H, W] in [0, 1] to [B, num_out_ch, scale * H,
    scale * W].

    `from_single_file` takes .pth and .safetensors files under Real-ESRGAN's, BSRGAN's and old ESRGAN's names; what it
    is follows from its tensors. num_upsample: doublings behind the blocks; where they make more than scale, as
    Real-ESRGAN's two do for 1 and 2, the picture comes in as blocks of pixels.

    >>> model = sf.models.RRDBNet(num_feat=8, num_block=1, num_grow_ch=4, scale=4)
    >>> model(sf.zeros(1, 3, 16, 24)).shape
    scaffolding.Size([1, 3, 64, 96])
    """

    def forward(self, x):
        """The larger pictures, not clamped. Sizes that blocks of pixels do not divide are padded."""
        return self.native_forward(x)


@model_class
class SRVGGNetCompact(ModelMixin):
    """Real-ESRGAN's compact network: pictures [B, num_in_ch, H, W] in [0, 1] to [B, num_out_ch, upscale * H, upscale *
    W].

    `from_single_file` sees from a file's tensors what it is, but for act_type where that is no "prelu": "relu" unless
    a config says "leakyrelu".

    >>> model = sf.models.SRVGGNetCompact(num_feat=8, num_conv=2, upscale=2)
    >>> model(sf.zeros(1, 3, 16, 24)).shape
    scaffolding.Size([1, 3, 32, 48])
    """

    def forward(self, x):
        """The larger pictures, not clamped."""
        return self.native_forward(x)


def load_upscaler(path, torch_dtype=None, device=None):
    """The network of a file of ESRGAN or Real-ESRGAN (.pth, .safetensors), whichever it is: an RRDBNet or an
    SRVGGNetCompact, in eval mode.

    ValueError for other files, and for tensors that are missing, of no layer or of another shape;
    NotImplementedError for ESRGAN+.

    >>> sf.save(sf.models.RRDBNet(num_feat=8, num_block=1).state_dict(), "x4.pth")
    >>> type(sf.models.load_upscaler("x4.pth")).__name__
    'RRDBNet'
    """
    path = os.fspath(path)
    name = _models.upscaler_class(path)
    if not name:
        raise ValueError(f"{path}: is no file of ESRGAN or Real-ESRGAN (RRDBNet, SRVGGNetCompact)")
    return MODEL_CLASSES[name].from_single_file(path, torch_dtype=torch_dtype, device=device)


def upscale(model, picture, tile=512, overlap=16, progress=None):
    """The picture enlarged by model.config's scale, of the same kind as it came.

    picture: a PIL image; an array [H, W] or [H, W, C], uint8 or floating in [0, 1]; a tensor uint8 [C, H, W], or
    floating [C, H, W] or [B, C, H, W] in [0, 1]. Bytes may have an alpha channel, which goes through the model as a
    grey picture beside the colours. tile: pixels on a side that are computed at once, by which memory is bounded; 0:
    all. overlap: pixels around a tile that it sees besides. progress(done, tiles): called after each tile.
    TypeError and ValueError for what is no picture.

    >>> model = sf.models.SRVGGNetCompact(num_feat=8, num_conv=2, upscale=2)
    >>> sf.models.upscale(model, sf.zeros(3, 48, 64, dtype=sf.uint8), tile=32).shape
    scaffolding.Size([3, 96, 128])
    """
    arguments = int(tile), int(overlap), progress
    if hasattr(picture, "getbands"):
        import numpy as np
        from PIL import Image

        if picture.mode not in ("L", "LA", "RGB", "RGBA"):
            picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
        return Image.fromarray(_bytes(model, np.asarray(picture), arguments))
    if hasattr(picture, "__array_interface__"):
        import numpy as np

        if picture.ndim not in (2, 3):
            raise ValueError(f"upscale: an array must be [H, W] or [H, W, C], got {list(picture.shape)}")
        if picture.dtype == np.uint8:
            return _bytes(model, picture, arguments)
        if picture.dtype.kind != "f":
            raise TypeError(f"upscale: an array must be uint8 or floating, got {picture.dtype}")
        planes = np.ascontiguousarray(np.atleast_3d(picture).transpose(2, 0, 1)[None], dtype=np.float32)
        large = _models.upscale_tensor(model, _tensor(planes), *arguments).clamp(0, 1)
        large = np.ascontiguousarray(large[0].permute(1, 2, 0).contiguous().numpy()).astype(picture.dtype)
        return large[:, :, 0] if picture.ndim == 2 else large
    if not hasattr(picture, "is_meta"):
        raise TypeError(f"upscale: picture must be a PIL image, an array or a tensor, got {type(picture).__name__}")
    if picture.dtype is uint8:
        return _models.upscale_picture(model, picture.to("cpu"), *arguments).to(picture.device)
    batch = picture if picture.ndim == 4 else picture.unsqueeze(0)
    large = _models.upscale_tensor(model, batch, *arguments).clamp(0, 1).to(picture.device).to(picture.dtype)
    return large if picture.ndim == 4 else large.squeeze(0)


def _bytes(model, array, arguments):
    """uint8 [H, W] or [H, W, C]"""
    import numpy as np

    planes = np.ascontiguousarray(np.atleast_3d(array).transpose(2, 0, 1))
    large = _models.upscale_picture(model, _tensor(planes), *arguments)
    large = np.ascontiguousarray(large.permute(1, 2, 0).contiguous().numpy())
    return large[:, :, 0] if array.ndim == 2 else large
