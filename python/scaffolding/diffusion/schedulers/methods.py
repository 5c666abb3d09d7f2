"""Methods that single classes of schedulers have in diffusers, for samplers and pipelines that call them."""

from ... import _core


class _DDIM:
    def _get_variance(self, timestep, prev_timestep):
        """Of the noise that a step with eta 1 adds: equation 16 of the paper."""
        alpha = self.alphas_cumprod[int(timestep)]
        before = self.alphas_cumprod[int(prev_timestep)] if prev_timestep >= 0 else self.final_alpha_cumprod
        return (1 - before) / (1 - alpha) * (1 - alpha / before)


class _DDPM:
    def _get_variance(self, t, predicted_variance=None, variance_type=None):
        """Of the noise that a step at this timestep adds."""
        prev = int(self.previous_timestep(t))
        alpha = self.alphas_cumprod[int(t)]
        before = self.alphas_cumprod[prev] if prev >= 0 else _core.tensor(1.0)
        beta = 1 - alpha / before
        variance = _core.clamp((1 - before) / (1 - alpha) * beta, min=1e-20)
        kind = variance_type or self.config.variance_type
        if kind == "fixed_small_log":
            return _core.exp(0.5 * _core.log(variance))
        if kind == "fixed_large":
            return beta
        if kind == "fixed_large_log":
            return _core.log(beta)
        if kind == "learned":
            return predicted_variance
        if kind == "learned_range":
            share = (predicted_variance + 1) / 2
            return share * _core.log(beta) + (1 - share) * _core.log(variance)
        return variance


class _PNDM:
    prk_timesteps = property(lambda self: self._core.prk_timesteps, doc="Of the run's Runge-Kutta steps.")
    plms_timesteps = property(
        lambda self: self.timesteps[len(self.prk_timesteps) :].tolist(), doc="Of the run's multistep steps."
    )

    def step_prk(self, model_output, timestep, sample, return_dict=True):
        """A Runge-Kutta step, whatever the run's place. ValueError before set_timesteps."""
        return self._by("prk", model_output, timestep, sample, return_dict)

    def step_plms(self, model_output, timestep, sample, return_dict=True):
        """A multistep step, whatever the run's place. ValueError before set_timesteps, and before three Runge-Kutta
        steps where the config asks for them."""
        return self._by("plms", model_output, timestep, sample, return_dict)

    def _by(self, method, *arguments):
        self._core.choose_method(method)
        return self._step(*arguments)


class _FlowMatchEuler:
    def scale_noise(self, sample, timestep, noise):
        """sigma * noise + (1 - sigma) * sample, at a timestep of the schedule for each sample."""
        return self._core.add_noise(sample, noise, timestep)

    def set_shift(self, shift):
        """The shift of runs to come."""
        self._core.set_shift(shift)

    shift = property(lambda self: self._core.shift)


METHODS = {
    "DDIMScheduler": _DDIM,
    "TCDScheduler": _DDIM,
    "DDPMScheduler": _DDPM,
    "PNDMScheduler": _PNDM,
    "FlowMatchEulerDiscreteScheduler": _FlowMatchEuler,
}
