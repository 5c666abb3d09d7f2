"""VaeImageProcessor: pictures to an autoencoder's tensors and back, as diffusers'."""

from ... import _core
from ..._core import _pipelines
from ..configuration import FrozenDict


def _is_pil(image):
    return type(image).__module__.startswith("PIL.") or any(c.__module__ == "PIL.Image" for c in type(image).__mro__)


def _is_array(image):
    return hasattr(image, "__array_interface__") and hasattr(image, "dtype") and not _is_pil(image)


def _tensor_of_pil(image):
    import numpy as np

    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        image = image.convert("L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB")
    pixels = np.asarray(image)
    return _core.tensor(pixels[:, :, None] if pixels.ndim == 2 else pixels).permute(2, 0, 1)


def picture_of(image):
    """A picture uint8 [C, H, W] of a PIL picture, a uint8 array [H, W] or [H, W, C], or a uint8 tensor [C, H, W];
    None for other things.
    """
    if _is_pil(image):
        return _tensor_of_pil(image)
    if isinstance(image, _core.Tensor):
        return image if image.dtype == _core.uint8 and image.ndim == 3 else None
    if _is_array(image) and str(image.dtype) == "uint8" and image.ndim in (2, 3):
        return _core.tensor(image[:, :, None] if image.ndim == 2 else image).permute(2, 0, 1)
    return None


def pil_of(picture):
    """The PIL picture of uint8 [C, H, W]."""
    from PIL import Image

    pixels = picture.permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def has_pil():
    """Whether Pillow is installed."""
    import importlib.util

    return importlib.util.find_spec("PIL") is not None


class VaeImageProcessor:
    """Pictures (PIL, uint8 arrays [H, W, C] or uint8 tensors [C, H, W]; one or a list) and values in [0, 1] (arrays [B,
    H, W, C], tensors [B, C, H, W]) to what an autoencoder takes, and back.

    vae_scale_factor: pixels for each latent; sizes are cut to its multiples. resample: "lanczos", "bicubic",
    "bilinear", "nearest" and Pillow's others. do_binarize and do_convert_grayscale make masks.

    >>> processor = sf.diffusion.VaeImageProcessor(vae_scale_factor=8)
    >>> pixels = processor.preprocess(sf.full((3, 60, 100), 255, dtype=sf.uint8))
    >>> pixels.shape, pixels.max(), processor.postprocess(pixels, output_type="np").shape
    (scaffolding.Size([1, 3, 56, 96]), tensor(1.), (1, 56, 96, 3))
    """

    def __init__(
        self,
        do_resize=True,
        vae_scale_factor=8,
        vae_latent_channels=4,
        resample="lanczos",
        do_normalize=True,
        do_binarize=False,
        do_convert_rgb=False,
        do_convert_grayscale=False,
    ):
        if do_convert_rgb and do_convert_grayscale:
            raise ValueError("VaeImageProcessor: do_convert_rgb and do_convert_grayscale exclude each other")
        self.config = FrozenDict(
            do_resize=do_resize,
            vae_scale_factor=vae_scale_factor,
            vae_latent_channels=vae_latent_channels,
            resample=resample,
            do_normalize=do_normalize,
            do_binarize=do_binarize,
            do_convert_rgb=do_convert_rgb,
            do_convert_grayscale=do_convert_grayscale,
        )
        self._core = _pipelines.VaeImageProcessor(
            do_resize, vae_scale_factor, vae_latent_channels, resample, do_normalize, do_binarize, do_convert_grayscale
        )

    def preprocess(self, image, height=None, width=None, resize_mode="default", crops_coords=None):
        """float32 [B, C, height, width] in [-1, 1] (masks: 0 and 1). Latents, tensors of vae_latent_channels channels,
        come back as they are.

        resize_mode: "default", "fill" (fit, border repeated) or "crop" (cover, cut), of pictures. crops_coords: (left,
        top, right, bottom), before it. ValueError for what is no picture, and for pictures that make no batch.
        """
        images = list(image) if isinstance(image, (list, tuple)) else [image]
        if not images:
            raise ValueError("VaeImageProcessor: needs at least one picture")
        if (
            len(images) == 1
            and isinstance(images[0], _core.Tensor)
            and images[0].dtype == _core.uint8
            and images[0].ndim == 4
        ):
            images = list(images[0].unbind(0))
        pictures = [picture_of(i) for i in images]
        if all(p is not None for p in pictures):
            return self._core.preprocess_pictures(pictures, height, width, resize_mode, crops_coords)
        return self._core.preprocess_values(self._values(images), height, width, resize_mode, crops_coords)

    def _values(self, images):
        """[B, C, H, W] of float arrays and tensors, by diffusers' rules of which dimension is which."""
        grey = self.config.do_convert_grayscale
        if all(isinstance(i, _core.Tensor) for i in images):
            if grey and len(images) == 1 and images[0].ndim == 3:
                images = [images[0].unsqueeze(1)]
            batch = _core.cat(images, 0) if images[0].ndim == 4 else _core.stack(images, 0)
            if grey and batch.ndim == 3:
                batch = batch.unsqueeze(1)
        elif all(_is_array(i) for i in images):
            import numpy as np

            if grey and len(images) == 1 and images[0].ndim == 3:
                images = [images[0][None] if images[0].shape[-1] == 1 else images[0][..., None]]
            array = np.concatenate(images, 0) if images[0].ndim == 4 else np.stack(images, 0)
            batch = self.numpy_to_pt(array.astype(np.float32) if array.dtype != np.float32 else array)
        else:
            kinds = ", ".join(sorted({type(i).__name__ for i in images}))
            raise ValueError(
                "VaeImageProcessor: image must be PIL pictures, arrays or tensors, or a list of one of these, got "
                f"{kinds}"
            )
        return batch

    def postprocess(self, image, output_type="pil", do_denormalize=None):
        """Pictures of an autoencoder's output [B, C, H, W] in [-1, 1]: "pil", "np" ([B, H, W, C] in [0, 1]), "pt" ([B,
        C, H, W] in [0, 1]), "sf_tensor" (uint8 [B, H, W, C], on the image's device), or "latent" (as it is).

        do_denormalize: a bool for each picture; absent, all are brought from [-1, 1] to [0,
        1] where the processor normalizes.
        """
        if not isinstance(image, _core.Tensor):
            raise ValueError(f"VaeImageProcessor: image must be a tensor, got {type(image).__name__}")
        if output_type == "latent":
            return image
        if do_denormalize is None:
            image = self._core.denormalize(image)
        else:
            image = _core.stack([self.denormalize(i) if on else i for i, on in zip(image, do_denormalize)], 0)
        return self.from_unit_range(image, output_type)

    def from_unit_range(self, image, output_type):
        """Values [B, C, H, W] in [0, 1] as the type asked for."""
        if output_type in ("pt", "latent"):
            return image
        if output_type == "sf_tensor":
            return self._core.frames(image)
        if output_type == "np":
            return self.pt_to_numpy(image)
        if output_type == "pil":
            return [pil_of(p) for p in self._core.pictures(image)]
        raise ValueError(f"output_type must be 'pil', 'np', 'pt', 'sf_tensor' or 'latent', got {output_type!r}")

    @staticmethod
    def normalize(images):
        """[0, 1] to [-1, 1]."""
        return 2.0 * images - 1.0

    @staticmethod
    def denormalize(images):
        """[-1, 1] to [0, 1], clamped."""
        return (images * 0.5 + 0.5).clamp(0, 1)

    @staticmethod
    def binarize(image):
        """0 below 0.5, 1 from there on."""
        return (image >= 0.5).to(image.dtype)

    @staticmethod
    def numpy_to_pictures(images):
        """Pictures uint8 [C, H, W] of an array [H, W, C] or [B, H, W, C] in [0, 1]."""
        images = images[None] if images.ndim == 3 else images
        return list(_pipelines.VaeImageProcessor.pictures(_core.tensor(images).permute(0, 3, 1, 2)))

    @staticmethod
    def numpy_to_pil(images):
        """PIL pictures of an array [H, W, C] or [B, H, W, C] in [0, 1]."""
        return [pil_of(p) for p in VaeImageProcessor.numpy_to_pictures(images)]

    @staticmethod
    def pil_to_numpy(images):
        """An array [B, H, W, C] in [0, 1] of PIL pictures of one size."""
        import numpy as np

        images = images if isinstance(images, list) else [images]
        return np.stack([np.array(i).astype(np.float32) / 255.0 for i in images], axis=0)

    @staticmethod
    def numpy_to_pt(images):
        """A tensor [B, C, H, W] of an array [B, H, W, C] or [B, H, W]."""
        images = images[..., None] if images.ndim == 3 else images
        return _core.tensor(images).permute(0, 3, 1, 2)

    @staticmethod
    def pt_to_numpy(images):
        """An array [B, H, W, C], float32, of a tensor [B, C, H, W]."""
        return images.cpu().permute(0, 2, 3, 1).float().contiguous().numpy()

    def resize(self, image, height, width, resize_mode="default"):
        """A PIL picture in another size, by the processor's filter; a tensor or array [B, ...] by the nearest pixel."""
        if _is_pil(image):
            return pil_of(self._core.resize(_tensor_of_pil(image), height, width, resize_mode))
        if resize_mode != "default":
            raise ValueError(f"VaeImageProcessor: resize_mode {resize_mode!r} is for PIL pictures")
        if isinstance(image, _core.Tensor):
            return _core.interpolate(image, (height, width))
        return self.pt_to_numpy(_core.interpolate(self.numpy_to_pt(image), (height, width)))

    @staticmethod
    def get_crop_region(mask_image, width, height, pad=0):
        """(left, top, right, bottom) around what is not black in a mask,
        `pad` pixels wider and grown towards width x height's aspect ratio.
        """
        return _pipelines.VaeImageProcessor.crop_region(picture_of(mask_image), width, height, pad)

    @staticmethod
    def convert_to_rgb(image):
        """A PIL picture as RGB."""
        return image.convert("RGB")

    @staticmethod
    def convert_to_grayscale(image):
        """A PIL picture as grey values."""
        return image.convert("L")

    @staticmethod
    def blur(image, blur_factor=4):
        """A PIL picture blurred by a Gaussian of that radius: soft edges for masks."""
        from PIL import ImageFilter

        return image.filter(ImageFilter.GaussianBlur(blur_factor))

    def apply_overlay(self, mask, init_image, image, crop_coords=None):
        """The PIL picture of init_image where the mask is black and the new one where it is white; crop_coords:
        where the new one belongs.
        """
        return pil_of(
            self._core.apply_overlay(picture_of(mask), picture_of(init_image), picture_of(image), crop_coords)
        )

    def overlaid(self, mask, init_image, images, crop_coords, output_type):
        """apply_overlay of each of images[B, 3, H, W] in [0, 1], as the type asked for."""
        init, mask = picture_of(init_image), picture_of(mask)
        made = [self._core.apply_overlay(mask, init, p, crop_coords) for p in self._core.pictures(images)]
        return self.from_unit_range(_core.stack(made, 0).to(_core.float32) / 255, output_type)
