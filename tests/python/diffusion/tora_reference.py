"""What Tora makes of trajectories, in NumPy float64 and as plainly as it can be said: points of the frames, flow at the
points, a filter of 99 x 99, torchvision's colours. Written from the description, not from the library.
"""

import numpy as np


def points_of_file(points, frames):
    if len(points) > frames:
        points = points[:: len(points) // frames]
    return points[:frames]


def points_of_frames(points, frames):
    points = [tuple(p) for p in points_of_file(points, frames)]
    if len(points) >= frames:
        return points[:: len(points) // frames][: frames - 1] + points[-1:]
    gaps = len(points) - 1
    new = [(frames - len(points)) // gaps + (gap < (frames - len(points)) % gaps) for gap in range(gaps)]
    out = []
    for gap, ((x0, y0), (x1, y1)) in enumerate(zip(points, points[1:])):
        out.append((x0, y0))
        for j in range(new[gap]):
            share = (j + 1) / (new[gap] + 1)
            out.append((int(x0 + share * (x1 - x0)), int(y0 + share * (y1 - y0))))
    return [*out, points[-1]]


def pixels(points, frames, height, width, canvas=(256, 256)):
    return [
        (min(int(width * x / canvas[0]), width - 1), min(int(height * y / canvas[1]), height - 1))
        for x, y in points_of_frames(points, frames)
    ]


def sparse_flow(trajectories, frames, height, width, canvas=(256, 256)):
    flow = np.zeros((frames, height, width, 2))
    for points in trajectories:
        at = pixels(points, frames, height, width, canvas)
        for i, ((x0, y0), (x1, y1)) in enumerate(zip(at, at[1:])):
            flow[i + 1, y0, x0] = x1 - x0, y1 - y0
    return flow


def filtered(picture, size=99, sigma=10.0):
    """One number per pixel [H, W]: the sum over the window, with the picture reflected about its outermost pixels."""
    ax = np.arange(size) - size // 2
    kernel = np.exp(-0.5 * (ax[:, None] ** 2 + ax[None, :] ** 2) / sigma**2)
    kernel = kernel / kernel.sum()
    kernel = kernel / kernel[size // 2, size // 2]
    padded = np.pad(picture, size // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size))
    return np.einsum("yxij,ij->yx", windows, kernel)


def flow(trajectories, frames, height, width, canvas=(256, 256), size=99, sigma=10.0):
    out = sparse_flow(trajectories, frames, height, width, canvas)
    for frame in out[1:]:
        for channel in range(2):
            if frame[..., channel].any():
                frame[..., channel] = filtered(frame[..., channel], size, sigma)
    return out


def wheel():
    out = np.zeros((55, 3))
    at = 0
    for length, rising, falling, full in [(15, 1, None, 0), (6, None, 0, 1), (4, 2, None, 1), (11, None, 1, 2),
                                          (13, 0, None, 2), (6, None, 2, 0)]:  # fmt: skip
        ramp = np.floor(255 * np.arange(length) / length)
        out[at : at + length, full] = 255
        if rising is not None:
            out[at : at + length, rising] = ramp
        if falling is not None:
            out[at : at + length, falling] = 255 - ramp
        at += length
    return out


def levels(flow):
    """255 times the colours of flow [N, 2, H, W], before they are cut to whole numbers: [N, 3, H, W]."""
    longest = np.sqrt((flow**2).sum(1)).max()
    u, v = np.moveaxis(flow / (longest + np.finfo(np.float32).eps), 1, 0)
    norm = np.sqrt(u**2 + v**2)
    place = (np.arctan2(-v, -u) / np.pi + 1) / 2 * 54
    below = np.floor(place).astype(int)
    above = (below + 1) % 55
    share = (place - below)[..., None]
    colour = ((1 - share) * wheel()[below] + share * wheel()[above]) / 255
    return np.moveaxis(255 * (1 - norm[..., None] * (1 - colour)), -1, 1)
