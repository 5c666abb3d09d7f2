"""diffusers' calls for pipelines that do not fit: settings of one streamer for each network (nn/streaming.py)."""

from ... import _core, cuda
from ..._core import _streaming
from ...nn import Module, streaming


def _onload_device(who, device=None, gpu_id=None):
    """The GPU of a call with diffusers' two arguments."""
    if device is None:
        if not cuda.is_available():
            raise RuntimeError(f"{who}: needs a GPU to compute on: {cuda.why_not()}")
        device = "cuda"
    device = _core.device(device) if isinstance(device, str) else device
    if gpu_id is None:
        return device
    if device.index:
        raise ValueError(f"{who}: gpu_id={gpu_id} and device={device} name the GPU twice; pass one")
    return _core.device(f"{device.type}:{gpu_id}")


class PipelineOffloadingMixin:
    """Of pipelines."""

    _phases = None  # of enable_model_cpu_offload
    _offloaded_by = ""
    _exclude_from_cpu_offload = ()  # component names, as in diffusers

    def enable_model_cpu_offload(self, gpu_id=None, device="cuda"):
        """One network at a time is on the GPU: whichever is called comes as a whole, and the one before it leaves.
        Weights that no call changed are dropped behind it, never copied back."""
        who = "enable_model_cpu_offload"
        device = self._begin_offload(who, device, gpu_id)
        phases = _streaming.Phases()

        def attach(module):
            streaming.attach(module, who, device=device, resident_bytes=2**62, load_now=False, phases=phases)

        self._attach_all(who, attach, device)
        self._phases = phases

    def enable_sequential_cpu_offload(self, gpu_id=None, device="cuda"):
        """The parts of each network come to the GPU one after another, copied beside the work: the least memory on the
        GPU that there is without a budget."""
        who = "enable_sequential_cpu_offload"
        device = self._begin_offload(who, device, gpu_id)
        self._attach_all(who, lambda module: streaming.attach(module, who, device=device, leaves=True), device)

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
        exclude_modules=None,
    ):
        """Every network's enable_group_offload with these arguments (ModelMixin). exclude_modules: names of components
        that are moved to onload_device as a whole instead. ValueError where another offloading is on."""
        who = "enable_group_offload"
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
        )
        exclude = [exclude_modules] if isinstance(exclude_modules, str) else list(exclude_modules or [])
        for name in exclude:
            if name not in self._components:
                raise ValueError(f"{who}: exclude_modules names '{name}'; there are {', '.join(self._components)}")
        if self._offloaded_by:
            raise ValueError(f"{who}: {self._offloaded_by} is on; call remove_all_hooks() first")
        self._graphs.clear()
        self._attach_all(who, lambda module: streaming.attach(module, who, **options), options["device"], exclude)

    def _begin_offload(self, who, device, gpu_id):
        # As in diffusers: these two take each other's place, and refuse beside group offloading.
        if self._offloaded_by == "enable_group_offload":
            raise ValueError(f"{who}: enable_group_offload is on; call remove_all_hooks() first")
        device = _onload_device(who, device, gpu_id)
        if device.type == "cpu":
            raise ValueError(f"{who}: needs a GPU to compute on, got device={device}")
        self.remove_all_hooks()
        self.to("cpu")
        return device

    def _attach_all(self, who, attach, device, exclude=()):
        done = []
        try:
            for name, module in self.components.items():
                if not isinstance(module, Module):
                    continue
                if name in exclude or name in self._exclude_from_cpu_offload:
                    module.to(device)
                else:
                    attach(module)
                    done.append(module)
        except Exception:
            for module in done:
                streaming.detach(module)
            raise
        self._offloaded_by = who

    def remove_all_hooks(self):
        """Takes every offloading off again: all weights are in host memory then."""
        self._graphs.clear()
        for module in self._modules():
            streaming.detach(module)
        self._phases, self._offloaded_by = None, ""
        self._drop_memory_plan()

    def maybe_free_model_hooks(self):
        """With enable_model_cpu_offload on: takes the network that is on the GPU off it. Calls do so at their end."""
        if self._phases is None:
            return
        self._graphs.clear()
        for module in self._modules():
            if (streamer := streaming.streamer_of(module)) is not None:
                streamer.offload()
