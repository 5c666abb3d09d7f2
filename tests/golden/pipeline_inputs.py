"""What the calls of the pipelines' golden files are given besides prompts: pictures, masks and embeds by a rule,
and callbacks.
"""

import numpy as np
from hashed_weights import hashed


def picture(height, width):
    """uint8 [height, width, 3]: waves, and a little noise."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    waves = np.stack([np.sin(x / 5) + np.cos(y / 7), np.sin((x + y) / 9), np.cos(x / 3 - y / 11)], -1)
    return (127 + 55 * waves + 15 * hashed("picture", (height, width, 3))).clip(0, 255).astype(np.uint8)


def mask(height, width):
    """uint8 [height, width]: a white rectangle with a grey edge."""
    m = np.zeros((height, width), np.uint8)
    m[height // 4 : height * 3 // 4, width // 3 : width * 5 // 6] = 90
    m[height // 4 + 2 : height * 3 // 4 - 2, width // 3 + 2 : width * 5 // 6 - 2] = 255
    return m


def embeds(name, shape):
    """float32, of variance near 1."""
    return hashed(name, tuple(shape)) * np.float32(3**0.5)


def shift(pipe, step, timestep, tensors):
    """Changes the latents of one step."""
    if step == 1:
        tensors["latents"] = tensors["latents"] * 0.5 + 0.1
    return tensors


def guidance_off(pipe, step, timestep, tensors):
    """Stops guiding, as diffusers' documentation does it."""
    if step == 2:
        tensors["prompt_embeds"] = tensors["prompt_embeds"].chunk(2)[-1]
        pipe._guidance_scale = 0.0
    return tensors


def interrupt(pipe, step, timestep, tensors):
    """Leaves out the steps after the second."""
    if step == 1:
        pipe._interrupt = True
    return tensors


CALLBACKS = {"shift": shift, "guidance_off": guidance_off, "interrupt": interrupt}
