"""TextToVideoPipeline: small videos from prompts, trained and sampled by diffusion."""

import inspect
import math
import operator
import os
import warnings

from ... import _core, hub
from ..._core import _diffusion, _pipelines
from ...autograd.grad_mode import no_grad
from ...diffusion import schedulers
from ...diffusion.configuration import FrozenDict
from ...diffusion.guidance import randn_tensor
from ...diffusion.pipelines.calls import texts
from ...diffusion.pipelines.progress_bar import ShowsProgress
from ...diffusion.training import training_batch
from ...models.modeling import ModelMixin
from ...models.video import SimpleUNet3D, TextEncoder, UNet3D, VideoDecoder, VideoEncoder
from ...tokenizers import TextTokenizer
from ..module import Module
from .frames import save_video_frames

_UNETS = {"SimpleUNet3D": SimpleUNet3D, "UNet3D": UNet3D}
_MODELS = {"text_encoder": TextEncoder, "unet": None, "encoder": VideoEncoder, "decoder": VideoDecoder}
_SIZES = ("num_frames", "frame_height", "frame_width")


def _default_scheduler(clip_sample):
    # A run begins at pure noise, where noise tells nothing of the clip: asked for v, a network that has learnt little
    # gives the mean of what it saw there, and one that is asked for the noise gives noise.
    return schedulers.DDIMScheduler(
        beta_schedule="squaredcos_cap_v2",
        prediction_type="v_prediction",
        timestep_spacing="trailing",
        clip_sample=clip_sample,
    )


class TextToVideoPipeline(ShowsProgress, Module):
    """Videos [B, 3, num_frames, frame_height, frame_width] of numbers in [-1, 1] from prompts.

    It is a module: `parameters()`, `to(device)`, `to(dtype)`, `state_dict()` and `train()` are those of its networks,
    text_encoder and unet. text_embed_dim: channels of a word's vector; model_channels: of the network's first level;
    num_heads: of every attention. These make the parts that are not given:

    - tokenizer: a TextTokenizer; text_encoder: a TextEncoder over its ids.
    - unet: a SimpleUNet3D; a UNet3D, or any network that is called as unet(sample, timesteps, text, mask).
    - scheduler: a DDIMScheduler with a cosine schedule and v-prediction; any of scaffolding.diffusion whose models
      predict noise, v or the sample. It is what `training_step` adds noise by and what `generate` steps.
    - encoder, decoder: a VideoEncoder and a VideoDecoder, for diffusion of latents; both or none, and none unless
      given. They were trained before and are not trained here: they get requires_grad_(False).

    ValueError where parts and sizes do not fit each other.

    >>> pipe = nn.video.TextToVideoPipeline(4, frame_height=16, frame_width=16, text_embed_dim=16, model_channels=8)
    >>> pipe.generate("a red ball", num_steps=2).shape
    scaffolding.Size([1, 3, 4, 16, 16])
    """

    config_name = "model_index.json"

    def __init__(
        self,
        num_frames=16,
        frame_height=64,
        frame_width=64,
        text_embed_dim=256,
        model_channels=64,
        num_heads=4,
        *,
        tokenizer=None,
        text_encoder=None,
        unet=None,
        scheduler=None,
        encoder=None,
        decoder=None,
    ):
        super().__init__()
        for name, value in zip(_SIZES, (num_frames, frame_height, frame_width)):
            value = operator.index(value)
            if value < 1:
                raise ValueError(f"TextToVideoPipeline: {name} must be positive, got {value}")
            setattr(self, name, value)
        if (encoder is None) != (decoder is None):
            raise ValueError("TextToVideoPipeline: encoder and decoder come together")
        self.tokenizer = TextTokenizer() if tokenizer is None else tokenizer
        self.text_encoder = text_encoder or TextEncoder(
            vocab_size=self.tokenizer.vocab_size,
            embed_dim=text_embed_dim,
            num_heads=num_heads,
            max_length=self.tokenizer.max_length,
        )
        channels = 3 if encoder is None else encoder.config.latent_channels
        self.unet = unet or SimpleUNet3D(
            in_channels=channels,
            model_channels=model_channels,
            num_heads=num_heads,
            context_dim=self.text_encoder.config.embed_dim,
            norm_num_groups=math.gcd(model_channels // 2, 8),  # two channels or more in each group
        )
        self.encoder, self.decoder = encoder, decoder
        for part in (encoder, decoder):
            if part is not None:
                part.requires_grad_(False)
        with _core.device("cpu"):  # where schedulers compute, wherever the networks are made
            self.scheduler = scheduler or _default_scheduler(clip_sample=encoder is None)
        self._progress_bar_config = {}
        self._check_parts(channels)

    def _check_parts(self, channels):
        text, tokenizer = self.text_encoder.config, self.tokenizer
        if tokenizer.vocab_size > text.vocab_size or tokenizer.max_length > text.max_length:
            raise ValueError(
                f"TextToVideoPipeline: the tokenizer gives ids below {tokenizer.vocab_size} and texts of "
                f"{tokenizer.max_length}, its text_encoder takes ids below {text.vocab_size} and {text.max_length} "
                "tokens"
            )
        unet = getattr(self.unet, "config", {})
        if unet.get("in_channels", channels) != channels or (unet.get("out_channels") or channels) != channels:
            raise ValueError(
                f"TextToVideoPipeline: the unet must have {channels} channels in and out, has "
                f"{unet.get('in_channels')} and {unet.get('out_channels') or unet.get('in_channels')}"
            )
        if unet.get("context_dim", text.embed_dim) != text.embed_dim:
            raise ValueError(
                f"TextToVideoPipeline: the unet's context_dim must be the text_encoder's embed_dim {text.embed_dim}, "
                f"is {unet.get('context_dim')}"
            )
        factor = self._spatial_factor()
        if isinstance(self.unet, SimpleUNet3D):
            factor *= 4
        elif isinstance(self.unet, UNet3D):
            factor *= 2 ** (len(unet.channel_mult) - 1)
        if self.frame_height % factor or self.frame_width % factor:
            raise ValueError(
                f"TextToVideoPipeline: frame_height and frame_width must be multiples of {factor}, got "
                f"{self.frame_height} and {self.frame_width}"
            )

    def _spatial_factor(self):
        """Pixels for each latent."""
        return 1 if self.encoder is None else 2 ** (len(self.encoder.config.channel_mult) - 1)

    # ---- what it is made of

    @property
    def config(self):
        """Frames, height and width, as attributes too."""
        return FrozenDict({name: getattr(self, name) for name in _SIZES})

    @property
    def components(self):
        """{name: part}, as the constructor takes them."""
        names = ("tokenizer", "text_encoder", "unet", "scheduler", "encoder", "decoder")
        return {name: getattr(self, name) for name in names}

    @property
    def device(self):
        """Where the unet computes."""
        return self._place().device

    @property
    def dtype(self):
        """What the unet computes in."""
        return self._place().dtype

    def _place(self):
        # A model knows where its weights go when they are elsewhere or in another dtype at rest.
        return self.unet if isinstance(self.unet, ModelMixin) else next(self.unet.parameters())

    # ---- text

    def encode_prompt(self, prompt):
        """(states[B, tokens, text_embed_dim], mask[B, tokens]) of a prompt or a list of them, as the unet takes them.

        A warning says what was cut off of a prompt that is longer than the tokenizer takes.
        TypeError for what is no text, ValueError for an empty list.
        """
        prompts = texts("TextToVideoPipeline: prompt", prompt)
        most = self.tokenizer.max_length - 2
        for text in prompts:
            if len(lost := self.tokenizer.tokenize(text)[most:]) > 0:
                warnings.warn(
                    f"TextToVideoPipeline: a prompt has at most {most} words here, and this part was cut off: "
                    f"{' '.join(lost)}",
                    stacklevel=2,
                )
        tokens = self.tokenizer(prompts, return_tensors="sf")
        ids, mask = tokens.input_ids.to(self.device), tokens.attention_mask.to(self.device)
        used = int(mask.sum(1).max())  # padding behind the longest text tells nothing
        ids, mask = ids[:, :used], mask[:, :used]
        return self.text_encoder(ids, mask), mask

    # ---- training

    def training_step(
        self, video, prompts, *, condition_dropout=0.1, noise=None, timesteps=None, generator=None, **options
    ):
        """The loss of one batch: a number with a gradient for every weight of the text encoder and the unet.

        video[B, 3, num_frames, frame_height, frame_width] in [-1, 1]; prompts: B texts. condition_dropout: the share of
        videos that are learnt without their prompt, by which guidance works. noise, timesteps[B]: instead of drawing
        them; all is drawn from `generator`, or the default one. Other options are training_batch's: snr_gamma,
        noise_offset, prediction_type, ...

        TypeError for a video that is not of floating numbers, ValueError for one of another shape, another number of
        prompts, and a share outside [0, 1].
        """
        latents = self._latents_of(video)
        if isinstance(prompts, str):
            raise TypeError("TextToVideoPipeline: prompts must be a list of str, one for each video, got a str")
        prompts = texts("TextToVideoPipeline: prompts", prompts)
        if len(prompts) != latents.shape[0]:
            raise ValueError(
                f"TextToVideoPipeline: needs a prompt for each of the {latents.shape[0]} videos, got {len(prompts)}"
            )
        if not 0 <= condition_dropout <= 1:
            raise ValueError(f"TextToVideoPipeline: condition_dropout must be from 0 to 1, got {condition_dropout}")
        if condition_dropout > 0:
            dropped = (_core.rand(len(prompts), generator=generator) < condition_dropout).tolist()
            prompts = ["" if drop else prompt for prompt, drop in zip(prompts, dropped)]
        batch = training_batch(self.scheduler, latents, noise, timesteps, generator, **options)
        states, mask = self.encode_prompt(prompts)
        return batch.loss(self.unet(batch.noisy_latents, batch.timesteps, states, mask))

    forward = training_step

    def _latents_of(self, video):
        """What is diffused of a video: itself, or its latents."""
        wanted = (3, self.num_frames, self.frame_height, self.frame_width)
        if not isinstance(video, _core.Tensor) or not video.dtype.is_floating_point:
            what = video.dtype if isinstance(video, _core.Tensor) else type(video).__name__
            raise TypeError(f"TextToVideoPipeline: video must be a tensor of floating numbers in [-1, 1], got {what}")
        if video.ndim != 5 or tuple(video.shape[1:]) != wanted or video.shape[0] == 0:
            raise ValueError(
                f"TextToVideoPipeline: video must be [B, {', '.join(map(str, wanted))}], got {tuple(video.shape)}"
            )
        video = video.to(self.device, self.dtype)
        if self.encoder is None:
            return video
        with no_grad():
            return self.encoder(video).sample() * self.encoder.config.scaling_factor

    # ---- sampling

    def generate(
        self,
        prompt,
        num_steps=50,
        guidance_scale=7.5,
        negative_prompt=None,
        *,
        eta=0.0,
        guidance_mode="batched",
        latents=None,
        seed=None,
        generator=None,
        callback=None,
    ):
        """Videos [B, 3, num_frames, frame_height, frame_width] in [-1, 1] of a prompt or a list of prompts.

        num_steps: of the scheduler; more take longer. guidance_scale: how closely to follow the prompt, against
        negative_prompt (one for all, or one for each; the empty text unless given); on above 1. eta: 1 adds DDPM's
        noise to DDIM's steps. guidance_mode: "sequential" calls the unet twice in each step, with half the memory.
        latents: unit noise [B, C, T, h, w] instead of drawing it. seed, or generator (one, or one for each prompt): the
        same one gives the same video. callback(step, timestep, latents) sees the end of each step.
        The networks are in eval mode for the time of the call, and no gradient is recorded.

        ValueError for arguments that cannot be or contradict each other.
        """
        prompts = texts("TextToVideoPipeline: prompt", prompt)
        if prompts is None:
            raise TypeError("TextToVideoPipeline: needs a prompt")
        guided = self._checked_guidance(guidance_scale, guidance_mode)
        negative = texts("TextToVideoPipeline: negative_prompt", "" if negative_prompt is None else negative_prompt)
        if len(negative) not in (1, len(prompts)):
            raise ValueError(
                f"TextToVideoPipeline: needs one negative_prompt, or one for each of the {len(prompts)} prompts, got "
                f"{len(negative)}"
            )
        negative *= len(prompts) // len(negative)
        if seed is not None:
            if generator is not None:
                raise ValueError("TextToVideoPipeline: takes seed or generator, not both")
            generator = _core.Generator().manual_seed(seed)
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            with no_grad():
                x = self._noise(len(prompts), latents, generator)
                text = self.encode_prompt([*negative, *prompts] if guided else prompts)
                denoise = self._guided(guidance_scale, guidance_mode) if guided else self.unet
                x = self._sample(x, text, denoise, num_steps, {"eta": eta, "generator": generator}, callback)
                if self.decoder is not None:
                    x = self.decoder(x / self.encoder.config.scaling_factor)
                return x.clamp(-1, 1)
        finally:
            for module, training in modes:
                module.training = training

    def _checked_guidance(self, scale, mode):
        """Whether guidance is on."""
        if not math.isfinite(scale):
            raise ValueError(f"TextToVideoPipeline: guidance_scale must be finite, got {scale}")
        if mode not in ("batched", "sequential"):
            raise ValueError(f"TextToVideoPipeline: guidance_mode must be 'batched' or 'sequential', got {mode!r}")
        return scale > 1

    def _noise(self, batch, given, generator):
        """What a run starts from [B, C, T, h, w]."""
        factor = self._spatial_factor()
        channels = 3 if self.encoder is None else self.encoder.config.latent_channels
        shape = (batch, channels, self.num_frames, self.frame_height // factor, self.frame_width // factor)
        if given is None:
            return randn_tensor(shape, generator=generator, device=self.device, dtype=self.dtype)
        if tuple(given.shape) != shape:
            raise ValueError(f"TextToVideoPipeline: latents must be {shape}, got {tuple(given.shape)}")
        return given.to(self.device, self.dtype)

    def _guided(self, scale, mode):
        """The unet's answer, pushed away from that of the first half of the texts."""

        def denoise(sample, timestep, states, mask):
            if mode == "batched":
                without, told = self.unet(_core.cat([sample, sample]), timestep, states, mask).chunk(2)
            else:
                half = states.shape[0] // 2
                without, told = (
                    self.unet(sample, timestep, states[i : i + half], mask[i : i + half]) for i in (0, half)
                )
            return without + scale * (told - without)

        return denoise

    def _sample(self, x, text, denoise, num_steps, options, callback):
        scheduler = self.scheduler
        scheduler.set_timesteps(num_steps, device=self.device)
        options = {k: v for k, v in options.items() if k in inspect.signature(scheduler.step).parameters}
        x = x * scheduler.init_noise_sigma
        timesteps = scheduler.timesteps
        bar = self.progress_bar(len(timesteps))
        for i, timestep in enumerate(timesteps):
            output = denoise(scheduler.scale_model_input(x, timestep), timestep, *text)
            x = scheduler.step(output, timestep, x, **options).prev_sample
            if callback is not None:
                callback(i, timestep, x)
            bar(i + 1, len(timesteps))
        return x

    def save_video_frames(self, video, output_dir):
        """save_video_frames of this package: PNG files of a video's frames in the folder output_dir; returns their
        paths."""
        return save_video_frames(video, output_dir)

    # ---- files

    def save_pretrained(self, save_directory, safe_serialization=True, variant=None, max_shard_size="10GB"):
        """Writes each part into a folder of its name, and model_index.json last, all beside before the first takes its
        place. TypeError for parts that are no models of this library."""
        folder, rows = os.fspath(save_directory), {}
        how = {"variant": variant, "safe_serialization": safe_serialization, "max_shard_size": max_shard_size}
        with _core._ReplacingFolder(folder, self.config_name):
            for name, part in self.components.items():
                if part is None:
                    rows[name] = ("", "")
                    continue
                if name in _MODELS and not isinstance(part, ModelMixin):
                    raise TypeError(
                        f"TextToVideoPipeline: {name} must be a model of scaffolding.models to be saved, is a "
                        f"{type(part).__name__}; its state_dict() can be"
                    )
                part.save_pretrained(os.path.join(folder, name), **(how if name in _MODELS else {}))
                rows[name] = ("scaffolding", "TextTokenizer") if name == "tokenizer" else _pipelines.component_row(part)
            _pipelines.save_index(folder, type(self).__name__, rows, dict(self.config))

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path,
        torch_dtype=None,
        variant=None,
        use_safetensors=None,
        device=None,
        *,
        revision=None,
        cache_dir=None,
        force_download=False,
        token=None,
        local_files_only=False,
        **parts,
    ):
        """A pipeline from a folder that save_pretrained wrote, in eval mode, or from the hub's repository of that name.

        torch_dtype, device: of the networks. variant: "fp16" for files of that name. Parts as keywords (scheduler=...)
        replace those of the folder. revision, cache_dir, force_download, token and local_files_only are for the hub.
        ValueError naming the file and what is wrong with it, TypeError for an unknown keyword.
        """
        names = ("tokenizer", "scheduler", *_MODELS)
        for name in parts:
            if name not in names:
                raise TypeError(f"{cls.__name__}.from_pretrained: unexpected keyword argument '{name}'")
        folder = os.fspath(pretrained_model_name_or_path)
        if not os.path.isdir(folder):
            folder = hub.snapshot_download(
                folder,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                token=token,
                local_files_only=local_files_only,
            )
        path = os.path.join(folder, cls.config_name)
        if not os.path.isfile(path):
            raise FileNotFoundError(2, "no such file", path)
        index = _diffusion.read_config_file(path)
        if index.get("_class_name") != "TextToVideoPipeline":
            raise ValueError(f"{path}: _class_name must be 'TextToVideoPipeline', got {index.get('_class_name')!r}")
        sizes = {name: index.get(name) for name in _SIZES}
        for name, value in sizes.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{path}: {name} must be a positive whole number, got {value!r}")
        how = {"torch_dtype": torch_dtype, "variant": variant, "use_safetensors": use_safetensors, "device": device}
        for name in names:
            absent = index.get(name) in ([None, None], (None, None))  # a folder of that name is of an earlier save
            if name not in parts and not absent and os.path.isdir(os.path.join(folder, name)):
                parts[name] = cls._part(folder, name, how)
        missing = [name for name in ("tokenizer", "scheduler", "text_encoder", "unet") if parts.get(name) is None]
        if missing:
            raise ValueError(f"{folder}: has no folder {missing[0]}, which a TextToVideoPipeline needs")
        return cls(**sizes, **parts).eval()

    @staticmethod
    def _part(folder, name, how):
        place = os.path.join(folder, name)
        if name == "tokenizer":
            return TextTokenizer.from_pretrained(place)
        if name == "scheduler":
            class_name = _diffusion.read_config_file(os.path.join(place, "scheduler_config.json")).get("_class_name")
            if class_name not in _diffusion.scheduler_names():
                raise ValueError(f"{place}: scheduler_config.json names no scheduler that is known, but {class_name!r}")
            made = getattr(schedulers, class_name)
            return made.from_pretrained(place)
        made = _MODELS[name]
        if made is None:
            class_name = ModelMixin.load_config(place).get("_class_name")
            if class_name not in _UNETS:
                raise ValueError(f"{place}: config.json must name one of {', '.join(_UNETS)}, got {class_name!r}")
            made = _UNETS[class_name]
        return made.from_pretrained(place, **how)

    def extra_repr(self):
        return ", ".join(f"{name}={getattr(self, name)}" for name in _SIZES)
