"""Memory plans of pipelines: where networks live and what is saved, for the memory there is."""

from ..._core import _pipelines

MemoryPlan = _pipelines.MemoryPlan
PROFILES = tuple(_pipelines.memory_profiles())  # "auto" first


class PlannedMemory:
    """What DiffusionPipeline has of memory plans."""

    @staticmethod
    def _check_plan(profile, max_vram, max_ram, device, device_map):
        """Whether a plan was asked for. ValueError for one beside a device, or of no profile."""
        if profile is None and max_vram is None and max_ram is None:
            return False
        if device is not None or device_map is not None:
            raise ValueError("from_pretrained: takes a device or a memory plan (profile, max_vram, max_ram), not both")
        if profile is not None and profile not in PROFILES:
            raise ValueError(
                f"from_pretrained: profile must be one of {', '.join(map(repr, PROFILES))}, got {profile!r}"
            )
        return True

    @staticmethod
    def _balanced(profile, max_vram, max_ram, device_map, max_memory):
        """(profile, max_vram, max_ram) of device_map="balanced" with diffusers' max_memory."""
        if device_map != "balanced":
            raise ValueError("from_pretrained: max_memory goes with device_map='balanced'")
        if (profile, max_vram, max_ram) != (None, None, None):
            raise ValueError("from_pretrained: takes device_map='balanced' or profile, max_vram and max_ram, not both")
        max_memory = dict(max_memory or {})
        strange = [key for key in max_memory if key != "cpu" and (isinstance(key, bool) or not isinstance(key, int))]
        if strange:
            raise ValueError(f"from_pretrained: max_memory is of 'cpu' and of GPUs by number, got {strange[0]!r}")
        if any(key not in (0, "cpu") for key in max_memory):
            raise NotImplementedError("from_pretrained: max_memory: a pipeline is on one GPU, number 0")
        amounts = {k: f"{v}B" if isinstance(v, int) else v for k, v in max_memory.items()}
        return "auto", amounts.get(0), amounts.get("cpu")

    def memory_plan(self, profile="auto", max_vram=None, max_ram=None, height=None, width=None, batch=1, device=None):
        """The plan for pictures of that size, so many at a time; print it to see it. Nothing is changed.

        profile: "auto" takes what fits into the free memory of GPU and host, and changes nothing where all fits;
        "full_gpu", "balanced", "unet_gpu", "gpu_poor", "extreme" and "cpu_only" say what is on the GPU, how guidance
        calls the denoiser and when memory is given back. max_vram, max_ram: instead of what is free, GB or texts such
        as "6GB" and "5.5GiB". device: the GPU, the first one at first. Activations are counted on the meta device for
        this call's shapes.
        ValueError for budgets that contradict the profile or that nothing fits, naming the least that would.
        """
        return _pipelines.memory_plan(
            self._entry_name, self._parts(), profile, max_vram, max_ram, height, width, batch, device
        )

    def apply_memory_plan(self, plan):
        """Carries a plan out, for all calls from now on: networks go to their devices; guidance, cleanup and how
        pictures are decoded are set. Returns itself.

        NotImplementedError for a plan in which a network comes and goes, before anything is moved.
        """
        parts = plan.parts
        mine = {name: c for name, c in self.components.items() if c is not None and hasattr(c, "to")}
        if set(mine) != set(parts):
            raise ValueError(
                f"{type(self).__name__}.apply_memory_plan: the plan is of a pipeline with {', '.join(parts)}, this one "
                f"has {', '.join(mine)}"
            )
        for name, part in parts.items():
            if part["residency"] != "resident" and part["device"] != "cpu":
                raise NotImplementedError(
                    f"{type(self).__name__}.apply_memory_plan: {name} comes and goes in this plan, which needs a "
                    "streamer"
                )
        self._graphs.clear()
        for name, module in mine.items():
            if str(module.device) != parts[name]["device"]:
                module.to(parts[name]["device"])
        _pipelines.save_decoding(self._entry_name, self._parts(), plan)
        self._savings = plan._savings
        return self
