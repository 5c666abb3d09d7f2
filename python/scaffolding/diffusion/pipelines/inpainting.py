"""What inpainting is in every family of Stable Diffusion: pictures and masks of any size, and a part that is looked at
closely and put back (padding_mask_crop)."""

from ... import _core
from ..._core import _pipelines
from .image_processor import picture_of


class InpaintingMixin:
    """In front of a family's base."""

    def _call(self, given, kwargs, output_type, return_dict):
        """padding_mask_crop: pixels around the mask that are looked at; the rest of the picture stays."""
        image, mask_image, padding = given["image"], given["mask_image"], given.pop("padding_mask_crop")
        who = type(self).__name__
        if image is None or mask_image is None:
            raise ValueError(f"{who}: needs an image and a mask_image")
        default_height, default_width = _pipelines.default_size(self._entry_name, self._parts())
        height, width = given["height"] or default_height, given["width"] or default_width
        if height % 8 or width % 8:
            raise ValueError(f"{who}: height and width must be divisible by 8, got {height} and {width}")
        crop, mode = None, "default"
        if padding is not None:
            if picture_of(image) is None or picture_of(mask_image) is None:
                raise ValueError(f"{who}: padding_mask_crop needs an image and a mask_image that are pictures")
            if self._output_type(output_type) == "latent":
                raise ValueError(f"{who}: padding_mask_crop puts pictures together; output_type must not be 'latent'")
            crop, mode = self.mask_processor.get_crop_region(mask_image, width, height, pad=padding), "fill"
        given["image"] = self.image_processor.preprocess(image, height, width, mode, crop).to(_core.float32)
        given["mask_image"] = self.mask_processor.preprocess(mask_image, height, width, mode, crop)
        given["height"], given["width"] = height, width
        self._shape_beside(given, mode, crop)
        if crop is None:
            return super()._call(given, kwargs, output_type, return_dict)
        values = super()._call(given, kwargs, "pt", False)[0]
        images = self.image_processor.overlaid(mask_image, image, values, crop, self._output_type(output_type))
        return self._result(images, None, return_dict)

    def _shape(self, given):
        """Picture and mask are tensors already."""

    def _shape_beside(self, given, resize_mode, crops_coords):
        """Pictures that a class is given besides, cut as the one that is made anew."""
