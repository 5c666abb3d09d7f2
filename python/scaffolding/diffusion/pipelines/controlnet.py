"""ControlNet's pipelines, under diffusers' names and arguments: what the registered classes shape in Python."""

from ...models.controlnet import MultiControlNetModel
from .calls import ENTRIES
from .image_processor import VaeImageProcessor
from .inpainting import InpaintingMixin
from .registration import ABSENT, registered
from .stable_diffusion import _StableDiffusion
from .stable_diffusion_xl import _StableDiffusionXL


class ControlNetMixin:
    """In front of a family's base: a ControlNet or a list of them, and their pictures.

    >>> canny = ControlNetModel.from_pretrained("lllyasviel/sd-controlnet-canny")
    >>> pipe = StableDiffusionControlNetPipeline.from_pretrained("stable-diffusion-v1-5", controlnet=canny)
    >>> pipe("a bird", image=scaffolding.data.canny(photo)).images[0].save("bird.png")
    """

    def _register(self, components, options):
        net = components.get("controlnet")
        if isinstance(net, (list, tuple)):
            components = {**components, "controlnet": MultiControlNetModel(net)}
        super()._register(components, options)

    def _spread(self, components):
        net = components.get("controlnet")
        if not isinstance(net, MultiControlNetModel):
            return components
        names = ["controlnet", *(f"controlnet_{i}" for i in range(1, len(net.nets)))]
        return {**components, **dict(zip(names, net.nets))}

    def _networks(self):
        return self._spread(super()._networks())

    def _parts(self):
        return self._spread(super()._parts())

    @classmethod
    def _of(cls, parts, config, given):
        nets = [parts[n] for n in parts if n == "controlnet" or n.startswith("controlnet_")]
        if len(nets) > 1:
            parts = {**parts, "controlnet": nets}
        return super()._of(parts, config, given)

    @property
    def control_image_processor(self):
        """What makes pictures [n, 3, H, W] in [0, 1] for ControlNets."""
        return VaeImageProcessor(vae_scale_factor=self.vae_scale_factor, do_convert_rgb=True, do_normalize=False)

    def _seen(self, image, net, given, *how):
        seen = self.control_image_processor.preprocess(image, given["height"], given["width"], *how)
        channels = (getattr(net, "config", None) or {}).get("conditioning_channels", 3)
        return seen.expand(-1, channels, -1, -1) if seen.shape[1] == 1 else seen  # grey pictures are edges, or depths

    def _seen_by_each(self, images, given, *how):
        """For each ControlNet a tensor of its pictures."""
        net = self.controlnet
        if not isinstance(net, MultiControlNetModel):
            return [self._seen(images, net, given, *how)]
        who = type(self).__name__
        if not isinstance(images, (list, tuple)):
            raise TypeError(f"{who}: of several ControlNets the pictures must be a list, got {type(images).__name__}")
        if any(isinstance(i, (list, tuple)) for i in images):  # for each prompt the pictures of all networks
            images = [list(pictures) for pictures in zip(*images)]
        if len(images) != len(net.nets):
            raise ValueError(f"{who}: needs a picture for each of its {len(net.nets)} ControlNets, got {len(images)}")
        return [self._seen(i, n, given, *how) for i, n in zip(images, net.nets)]

    def _shape(self, given):
        roles = ENTRIES[self._entry_name]["roles"]
        if "mask" in roles.values():
            return  # what is cut is shaped with the picture
        for name, role in roles.items():
            if given.get(name) is None:
                raise ValueError(f"{type(self).__name__}: needs an {name}")
            if role == "control":
                given[name] = self._seen_by_each(given[name], given)
            else:
                given[name] = self.image_processor.preprocess(given[name], given["height"], given["width"])

    def _shape_beside(self, given, resize_mode, crops_coords):
        if given.get("control_image") is None:
            raise ValueError(f"{type(self).__name__}: needs a control_image")
        given["control_image"] = self._seen_by_each(given["control_image"], given, resize_mode, crops_coords)


class _Controlled(ControlNetMixin, _StableDiffusion):
    pass


class _ControlledInpaint(ControlNetMixin, InpaintingMixin, _StableDiffusion):
    pass


class _ControlledXL(ControlNetMixin, _StableDiffusionXL):
    pass


_DEFAULTS = {"text_encoder": ABSENT, "tokenizer": ABSENT}
StableDiffusionControlNetPipeline = registered("StableDiffusionControlNetPipeline", _Controlled, _DEFAULTS)
StableDiffusionControlNetImg2ImgPipeline = registered(
    "StableDiffusionControlNetImg2ImgPipeline", _Controlled, _DEFAULTS
)
StableDiffusionControlNetInpaintPipeline = registered(
    "StableDiffusionControlNetInpaintPipeline", _ControlledInpaint, _DEFAULTS
)
_XL_DEFAULTS = {"add_watermarker": None}
StableDiffusionXLControlNetPipeline = registered("StableDiffusionXLControlNetPipeline", _ControlledXL, _XL_DEFAULTS)
StableDiffusionXLControlNetImg2ImgPipeline = registered(
    "StableDiffusionXLControlNetImg2ImgPipeline", _ControlledXL, _XL_DEFAULTS
)
