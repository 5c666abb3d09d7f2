"""The switches that autoencoders share."""


class AutoencoderMixin:
    """Slicing and tiling: less memory for batches and for large pictures."""

    def enable_slicing(self):
        """One picture of a batch at a time: the same result with the memory of one."""
        self.use_slicing = True

    def disable_slicing(self):
        """The whole batch at once again."""
        self.use_slicing = False

    def enable_tiling(self):
        """Pictures above `tile_sample_min_size` in overlapping tiles with blended seams: the memory of one tile,
        and nearly the same result.
        """
        self.use_tiling = True

    def disable_tiling(self):
        """Whole pictures again."""
        self.use_tiling = False
