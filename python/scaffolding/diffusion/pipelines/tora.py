"""Tora: trajectories as points, as flow and as the clip in colours that its network is told.

>>> video_flow("10,54 32,20 54,10", num_frames=17, height=64, width=64, canvas=(64, 64)).shape
(1, 17, 3, 64, 64)
"""

import os

from ..._core import Tensor, _diffusion, _pipelines, cat
from .cogvideox import DEFAULTS, CogVideoXCalls, ImageToVideoCalls
from .registration import registered

CANVAS = (256, 256)  # of Tora's files: width, height


def _points(rows):
    points = []
    for row in rows:
        try:
            x, y = () if isinstance(row, str) else row
            points.append((float(x), float(y)))
        except (TypeError, ValueError):
            raise TypeError(f"trajectories: point {len(points) + 1} must be two numbers (x, y), got {row!r}") from None
    return points


def _depth(value):
    """How many lists are in each other: 2 in one of points."""
    return 1 + _depth(value[0]) if isinstance(value, (list, tuple)) and value else int(isinstance(value, (list, tuple)))


def as_trajectories(trajectories):
    """Trajectories of any form as lists of points (x, y):

    - a text, "10,54 32,20 54,10"; of several ";" stands between them;
    - a file, as pathlib.Path or a text that ends in ".txt": a point "x,y" on each line;
    - points, a list [(10, 54), (32, 20)] or an array or tensor [N, 2];
    - a list of those, or an array [K, N, 2]: several trajectories.

    TypeError for other things, ValueError for texts and files that are no points, RuntimeError for files that cannot be
    read. Whether the points lie on a canvas is not looked at.
    """
    if isinstance(trajectories, os.PathLike) or (isinstance(trajectories, str) and trajectories.endswith(".txt")):
        return [_diffusion.read_trajectory(os.fspath(trajectories))]
    if isinstance(trajectories, str):
        return _diffusion.parse_trajectories(trajectories)
    if isinstance(trajectories, Tensor) or hasattr(trajectories, "__array_interface__"):
        if trajectories.ndim not in (2, 3) or trajectories.shape[-1] != 2:
            raise TypeError(f"trajectories: an array must be [N, 2] or [K, N, 2], got {list(trajectories.shape)}")
        rows = trajectories.tolist()
        return [_points(part) for part in (rows if trajectories.ndim == 3 else [rows])]
    if not isinstance(trajectories, (list, tuple)):
        raise TypeError(
            f'trajectories: must be points, a text such as "10,54 32,20" or a file, got {type(trajectories).__name__}'
        )
    if not trajectories or _depth(trajectories) == 2:
        return [_points(trajectories)]
    return [points for part in trajectories for points in as_trajectories(part)]


def trajectory_points(trajectories, num_frames, height, width, canvas=CANVAS):
    """The pixel (x, y) of each frame, for each trajectory.

    trajectories: of any form that as_trajectories takes, at most 16 of 2 points or more. canvas: the width and height
    that their points are measured on; (width, height) where they are pixels. As Tora has it, of more points than frames
    every (points // frames)-th counts, from the first on; between fewer, others are put on straight lines. ValueError
    for points outside the canvas.
    """
    return _diffusion.pixels_of_frames(as_trajectories(trajectories), num_frames, height, width, tuple(canvas))


def trajectory_flow(trajectories, num_frames, height, width, canvas=CANVAS, kernel_size=99, sigma=10.0):
    """Flow [num_frames, height, width, 2], float32: the way in pixels to the right and down that each place has come
    with a frame. The first frame has none.

    Arguments are trajectory_points'. The flow of a point is spread by a Gaussian of kernel_size x kernel_size pixels
    that is 1 at its centre; sigma 0 leaves it at the point.
    """
    lists = as_trajectories(trajectories)
    return _diffusion.trajectory_flow(lists, num_frames, height, width, tuple(canvas), kernel_size, float(sigma))


def flow_to_image(flow):
    """Flow [N, 2, H, W] or [2, H, W] as pictures, uint8 [N, 3, H, W] or [3, H, W], as torchvision.utils has them:
    directions are colours, lengths their strength, relative to the longest of all N. On the host.

    ValueError for flow that is not finite.
    """
    return _diffusion.flow_to_image(flow)


def video_flow(trajectories, num_frames, height, width, canvas=CANVAS, kernel_size=99, sigma=10.0):
    """The clip [1, num_frames, 3, height, width] of values from -1 to 1 that says Tora where things go: trajectory_flow
    in flow_to_image's colours, float32, for the video's autoencoder.
    """
    return video_of_flow(trajectory_flow(trajectories, num_frames, height, width, canvas, kernel_size, sigma))


def video_of_flow(flow):
    """The clip [1, T, 3, H, W] of any flow [T, H, W, 2], such as one that was measured in a film."""
    return _diffusion.video_of_flow(flow)


__all__ = [
    "as_trajectories",
    "flow_to_image",
    "trajectory_flow",
    "trajectory_points",
    "video_flow",
    "video_of_flow",
]


def _is_file(value):
    return isinstance(value, os.PathLike) or (isinstance(value, str) and value.endswith(".txt"))


def _in_pixels(trajectories, height, width):
    """Trajectories of any form as lists of points in pixels: those of files are on Tora's canvas."""
    if _is_file(trajectories):
        across, down = width / CANVAS[0], height / CANVAS[1]
        _diffusion.pixels_of_frames(as_trajectories(trajectories), 1, height, width, CANVAS)  # refuses what leaves it
        return [[(x * across, y * down) for x, y in points] for points in as_trajectories(trajectories)]
    if isinstance(trajectories, (list, tuple)) and any(map(_is_file, trajectories)):
        return [points for part in trajectories for points in _in_pixels(part, height, width)]
    return as_trajectories(trajectories)


class _Tora:
    """Steered by trajectories=, in pixels of the clip: a text "10,54 32,20 54,10", points [(10, 54), (32, 20)], an
    array [N, 2] or [K, N, 2], a list of those, or files of points on a canvas of 256 x 256. Or by video_flow= [1, T, 3,
    H, W] from -1 to 1, as video_flow() makes it. Without either, the pipeline is CogVideoX.

    _UNET_FRAME_BATCH: how many steps in time the part of the transformer that is per frame, the extractor of the flow's
    features, takes at once; 0 for all. Results are the same."""

    _UNET_FRAME_BATCH = 4

    def _shape(self, given):
        frame_batch = self._UNET_FRAME_BATCH
        if type(frame_batch) is not int or frame_batch < 0:
            who = type(self).__name__
            raise ValueError(f"{who}: _UNET_FRAME_BATCH must be a number of frames, or 0 for all, got {frame_batch!r}")
        self.transformer.frame_batch = frame_batch
        trajectories = given.pop("trajectories")
        super()._shape(given)
        if trajectories is None:
            return
        who = type(self).__name__
        if given["video_flow"] is not None:
            raise ValueError(f"{who}: takes video_flow or trajectories, not both")
        height, width = _pipelines.default_size(self._entry_name, self._parts())
        height, width = given["height"] or height, given["width"] or width
        frames = given["num_frames"] or self.transformer.config.sample_frames
        points = _in_pixels(trajectories, height, width)
        given["video_flow"] = video_flow(points, frames, height, width, canvas=(width, height))

    def _told(self, video, options, generator):
        """trajectories=: for each clip what steers it, of any form; or video_flow= [B or 1, T, 3, H, W], which may be
        of a dense flow (video_of_flow). Without either, nothing steers the clips."""
        trajectories, flow = options.pop("trajectories", None), options.pop("video_flow", None)
        told = super()._told(video, options, generator)
        who = type(self).__name__
        if trajectories is not None:
            if flow is not None:
                raise ValueError(f"{who}: takes video_flow or trajectories, not both")
            count, _, frames, height, width = video.shape
            if isinstance(trajectories, (str, os.PathLike)) or len(trajectories) != count:
                raise ValueError(f"{who}: trajectories must be a list with those of each of the {count} clips")
            points = [_in_pixels(each, height, width) for each in trajectories]
            flow = cat([video_flow(each, frames, height, width, canvas=(width, height)) for each in points], 0)
        return (
            told if flow is None else {**told, "video_flow": self._latents_of(flow.permute(0, 2, 1, 3, 4), generator)}
        )


class _TextToVideo(_Tora, CogVideoXCalls):
    pass


class _ImageToVideo(_Tora, ImageToVideoCalls):
    pass


ToraPipeline = registered("ToraPipeline", _TextToVideo, DEFAULTS)
ToraImageToVideoPipeline = registered("ToraImageToVideoPipeline", _ImageToVideo, DEFAULTS)
