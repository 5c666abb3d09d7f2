"""PipelineRun: a pipeline's call between its steps."""


class PipelineRun:
    """What `pipe.start(...)` gives. Runs of one pipeline may take turns: each has a scheduler of its own.

    >>> run = pipe.start("a lighthouse", num_inference_steps=30, seed=7)  # doctest: +SKIP
    >>> while not run.done:  # doctest: +SKIP
    ...     run.step()
    >>> run.finish().images[0].save("lighthouse.png")  # doctest: +SKIP
    """

    def __init__(self, pipe, core, output_type, return_dict, scaled):
        """scaled(): a context in which adapters are as strong as this run asked for."""
        self._pipe, self._core, self._output_type, self._return_dict = pipe, core, output_type, return_dict
        self._scaled = scaled

    done = property(
        lambda self: self._core.done, doc="Whether no step is left: all were done, or the run was interrupted."
    )
    at = property(lambda self: self._core.at, doc="Steps of the schedule that were done.")
    steps = property(lambda self: self._core.steps, doc="Steps of the schedule.")

    @property
    def makeshifts(self):
        """What the run did besides since memory ran out, such as "guidance in two calls"; empty where all was done as
        asked."""
        return list(self._core.makeshifts)

    @property
    def latents(self):
        """What becomes the pictures, [B, ...]; may be replaced between steps."""
        return self._core.latents

    @latents.setter
    def latents(self, latents):
        if latents.shape != self._core.latents.shape:
            raise ValueError(
                f"PipelineRun: latents must stay of shape {tuple(self._core.latents.shape)}, got {tuple(latents.shape)}"
            )
        self._core.latents = latents

    def step(self):
        """One step of the schedule. RuntimeError where none is left."""
        with self._scaled():
            self._core.step()

    def interrupt(self):
        """Leaves out the steps that remain."""
        self._core.interrupt()

    def keep_samples(self, places):
        """Only the samples with these places in the batch go on. ValueError for places that are not there,
        and for none.
        """
        self._core.keep_samples([int(p) for p in places])

    def preview(self, n=0, output_type=None):
        """Pictures, or clips, of the first n samples as they are now; 0: of all."""
        pipe, output_type = self._pipe, self._pipe._output_type(output_type)
        preview = self._core.preview_frames if pipe._as_frames(output_type) else self._core.preview
        return pipe._shown(preview(n), output_type)

    def finish(self):
        """The pipeline's result of what is there, as a call returns it."""
        images, sound, *lost = self._core.finish(self._pipe._as_frames(self._output_type))
        return self._pipe._finished(images, sound, lost, self._output_type, self._return_dict)
