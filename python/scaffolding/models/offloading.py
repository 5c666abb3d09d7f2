"""diffusers' calls for models that do not fit: settings of one streamer (nn/streaming.py)."""

from .. import _core
from ..nn import streaming

# Of diffusers: what is critical for precision.
_DEFAULT_SKIPPED = ("pos_embed", "patch_embed", "norm", "^proj_in$", "^proj_out$")


class OffloadingMixin:
    """Of models."""

    _skip_layerwise_casting_patterns = ()  # of the class: what is never cast in it

    def enable_group_offload(
        self,
        onload_device,
        offload_device="cpu",
        offload_type="block_level",
        num_blocks_per_group=None,
        non_blocking=False,
        use_stream=False,
        record_stream=False,
        low_cpu_mem_usage=False,
        offload_to_disk_path=None,
        block_modules=None,
        exclude_kwargs=None,
    ):
        """Weights are in host memory, and on onload_device within the calls of the part that they belong to.

        offload_type: "block_level", num_blocks_per_group repeated blocks of the model at a time, or "leaf_level", its
        smallest parts (an attention, a feed-forward layer). use_stream: copies run beside the work, out of pinned
        memory; without, each is waited for in line. low_cpu_mem_usage: weights are not pinned but staged through two
        pinned buffers. offload_to_disk_path: the weights become pages of files in that folder, which are read when
        they are needed. block_modules: names of modules; only what is in those comes and goes, by their own repeated
        blocks or as a whole. non_blocking, record_stream: as in diffusers, and always so. exclude_kwargs: of no effect,
        since arguments are never moved. What is in no block stays on onload_device. ValueError for arguments that
        contradict each other, and where the weights are offloaded already."""
        who = "enable_group_offload"
        del exclude_kwargs
        options = streaming.group_offload_options(
            who,
            onload_device,
            offload_device,
            offload_type,
            num_blocks_per_group,
            non_blocking,
            use_stream,
            record_stream,
            low_cpu_mem_usage,
            offload_to_disk_path,
            block_modules,
        )
        streaming.attach(self, who, **options)

    def enable_layerwise_casting(
        self,
        storage_dtype=_core.float8_e4m3fn,
        compute_dtype=None,
        skip_modules_pattern=None,
        skip_modules_classes=None,
        non_blocking=False,
    ):
        """Stores the weights of linear layers, convolutions and embeddings in storage_dtype and converts them to
        compute_dtype (the model's) around each call of the part that they belong to. skip_modules_pattern: regular
        expressions of names of modules that stay as they are, beside those that the model's class names; norms,
        position embeddings, proj_in and proj_out where it is None. skip_modules_classes: classes of such modules.
        non_blocking: of no effect, nothing blocks. Offloading may be switched on afterwards, at either level."""
        del non_blocking
        skip = _DEFAULT_SKIPPED if skip_modules_pattern is None else skip_modules_pattern
        skip = [skip] if isinstance(skip, str) else list(skip)
        skip += self._skip_layerwise_casting_patterns
        for name, module in self.named_modules():
            if skip_modules_classes and isinstance(module, tuple(skip_modules_classes)):
                skip.append("^" + name.replace(".", r"\.") + "$")
        streaming.cast(self, storage_dtype, compute_dtype if compute_dtype is not None else self.dtype, skip)

    def remove_all_hooks(self):
        """Takes offloading off again: all weights are in host memory then."""
        streaming.detach(self)
