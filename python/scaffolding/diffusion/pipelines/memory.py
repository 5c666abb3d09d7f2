"""Memory plans of pipelines: where networks live and what is saved, for the memory there is."""

from ..._core import _pipelines, _streaming
from ...nn import Module, streaming

MemoryPlan = _pipelines.MemoryPlan
PROFILES = tuple(_pipelines.memory_profiles())  # "auto" first


class _Placement:
    """The networks that a plan put where they are, and those of them that come and go. Shared by pipelines of the same
    networks."""

    def __init__(self, networks, graphs):
        self.networks, self.graphs, self.plan, self.peaks, self.phases = networks, graphs, None, None, {}

    def carry_out(self, plan):
        """Another plan takes the place of the last one. Where that fails, networks are where they were."""
        who, parts = "apply_memory_plan", plan.parts
        for name, module in self.networks.items():
            by = streaming.streamed_by(module)
            if by not in ("", who):
                raise ValueError(f"{who}: {by} is on for {name}; call remove_all_hooks() first")
            if plan._stream_options(name) is not None and not isinstance(module, Module):
                raise NotImplementedError(
                    f"{who}: {name} comes and goes in this plan, and is a {type(module).__name__}, not a Module"
                )
        self.graphs.clear()
        before = {n: "cpu" if streaming.streamed_by(m) else m.device for n, m in self.networks.items()}
        try:
            anew = [name for name in parts if not self._gives_way(plan, name)]
            for name in anew:
                streaming.detach(self.networks[name])
            # what leaves a device makes room on it
            for name in sorted(anew, key=lambda n: parts[n]["device"] != "cpu" and not plan._stream_options(n)):
                module, options = self.networks[name], plan._stream_options(name)
                device = "cpu" if options else parts[name]["device"]
                if str(module.device) != device:
                    module.to(device)
                if options:
                    of = self.phases.setdefault(options["device"], _streaming.Phases())
                    streaming.attach(module, who, phases=of, **options)
        except Exception:
            self.release()
            self.plan = None
            for name, module in self.networks.items():
                module.to(before[name])
            raise
        self.plan, self.peaks = plan, _pipelines.PeakMemory(plan.device)

    def _gives_way(self, plan, name):
        """Whether a network that comes and goes already is as another plan has it, after blocks left the device."""
        streamer = streaming.streamer_of(self.networks[name])
        if self.plan is None or streamer is None:
            return False
        wanted = plan._bytes_to_evict(self.plan, name)
        return wanted is not None and (wanted == 0 or streamer.evict(wanted) > 0)

    def release(self):
        """All networks of the plan that come and go are in host memory and stay."""
        for module in self.networks.values():
            if streaming.streamed_by(module) == "apply_memory_plan":
                streaming.detach(module)

    def make_room(self):
        """Whether the networks take an eighth of the GPU's peak less from now on."""
        less = self.plan and self.plan._with_less()
        if less is not None:
            self.carry_out(less)
        return less is not None


def _balanced(who, max_memory):
    """memory_plan's keywords of diffusers' max_memory."""
    strange = [key for key in max_memory if key != "cpu" and (isinstance(key, bool) or not isinstance(key, int))]
    if strange:
        raise ValueError(f"{who}: max_memory is of 'cpu' and of GPUs by number, got {strange[0]!r}")
    if any(key not in (0, "cpu") for key in max_memory):
        raise NotImplementedError(f"{who}: max_memory: a pipeline is on one GPU, number 0")
    amounts = {key: f"{value}B" if isinstance(value, int) else value for key, value in max_memory.items()}
    named = {"max_vram": amounts.get(0), "max_ram": amounts.get("cpu")}
    return {"profile": "auto", **{name: value for name, value in named.items() if value is not None}}


class PlannedMemory:
    """What DiffusionPipeline has of memory plans."""

    @staticmethod
    def _asked_plan(who, kwargs, device, device_map):
        """(keywords of memory_plan, or None where no plan was asked for; device_map without "balanced") of what a call
        that loads was given; takes its own out of kwargs. ValueError for a plan beside a device, of no profile, and for
        amounts that are none."""
        plan = {name: kwargs.pop(name) for name in ("profile", "max_vram", "max_ram") if name in kwargs}
        plan = {name: value for name, value in plan.items() if value is not None}
        max_memory = kwargs.pop("max_memory", None)
        if device_map == "balanced":
            if plan:
                raise ValueError(f"{who}: takes device_map='balanced' or profile, max_vram and max_ram, not both")
            plan, device_map = _balanced(who, dict(max_memory or {})), None
        elif max_memory is not None:
            raise ValueError(f"{who}: max_memory goes with device_map='balanced'")
        if not plan:
            return None, device_map
        if device is not None or device_map is not None:
            raise ValueError(f"{who}: takes a device or a memory plan (profile, max_vram, max_ram), not both")
        if plan.get("profile", "auto") not in PROFILES:
            names = ", ".join(map(repr, PROFILES))
            raise ValueError(f"{who}: profile must be one of {names}, got {plan['profile']!r}")
        return plan, None

    def _drop_memory_plan(self):
        if self._placement is not None:
            self._placement.release()
            self._placement.plan = None
            self._savings, self._placement = (False, False, 0), None

    def memory_plan(
        self,
        profile="auto",
        max_vram=None,
        max_ram=None,
        height=None,
        width=None,
        batch=1,
        device=None,
        num_frames=None,
    ):
        """The plan for pictures of that size, or clips of so many frames, so many at a time; print it to see it.
        Nothing is changed.

        profile: "auto" takes what fits into the free memory of GPU and host, and changes nothing where all fits;
        "full_gpu", "balanced", "unet_gpu", "gpu_poor", "extreme" and "cpu_only" say what is on the GPU, how guidance
        calls the denoiser and when memory is given back. max_vram, max_ram: instead of what is free, GB or texts such
        as "6GB" and "5.5GiB". device: the GPU, the first one at first. Activations are counted on the meta device for
        this call's shapes.
        ValueError for budgets that contradict the profile or that nothing fits, naming the least that would.
        """
        return _pipelines.memory_plan(
            self._entry_name, self._parts(), profile, max_vram, max_ram, height, width, num_frames, batch, device
        )

    def memory_report(self):
        """The predicted peaks of the plan that was carried out as lines of text, beside those that were measured since:
        of the GPU what tensors took, of the host all that was resident; and what decoding takes of it. RuntimeError
        without a plan."""
        if self._placement is None or self._placement.plan is None:
            raise RuntimeError(f"{type(self).__name__}.memory_report: there is no plan; call apply_memory_plan first")
        return self._placement.plan._peaks(self._placement.peaks)

    def apply_memory_plan(self, plan):
        """Carries a plan out, for all calls from now on: networks go to their devices, or come and go; guidance,
        cleanup and how pictures are decoded are set. Calls that run out of memory go on with less of the networks on
        the GPU. Another plan takes this one's place, remove_all_hooks() takes it off. Returns itself.

        ValueError for another pipeline's plan, and where offloading is on.
        """
        parts = plan.parts
        mine = {name: c for name, c in self._networks().items() if c is not None and hasattr(c, "to")}
        if set(mine) != set(parts):
            raise ValueError(
                f"{type(self).__name__}.apply_memory_plan: the plan is of a pipeline with {', '.join(parts)}, this one "
                f"has {', '.join(mine)}"
            )
        if self._placement is None or self._placement.networks != mine:
            self._placement = _Placement(mine, self._graphs)
        self._placement.carry_out(plan)
        _pipelines.save_decoding(self._entry_name, self._parts(), plan)
        self._savings = plan._savings
        return self
