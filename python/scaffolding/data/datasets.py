"""Data sets of pictures with captions or labels, decoded in C++.

A sample is a dict: image (uint8 [C, H, W], or what transform makes of it), text (where there are captions), label
(where there are classes), name, index. A batch has tensors for image, label and index, lists for text and name.
"""

import os

from .. import _core
from ..utils.data.dataset import Dataset
from ..utils.data.sampler import RandomSampler, Sampler, SequentialSampler, _positive

_data = _core._data


class _ImageDataset(Dataset):
    def __init__(self, native, transform):
        self._native = native
        self._python_transform = None if transform is None or isinstance(transform, _data.Transform) else transform
        self.transform = transform

    @property
    def _native_if_whole(self):
        """What a DataLoader may decode without Python: everything but a transform written in Python."""
        return self._native if self._python_transform is None else None

    def __len__(self):
        return len(self._native)

    def __getitem__(self, index):
        sample = self._native.get(index + len(self) if index < 0 else index)
        if self._python_transform is not None:
            sample["image"] = self._python_transform(sample["image"])
        return sample

    @property
    def skipped(self):
        """[(index, name, reason)] of the pictures that were found broken so far."""
        return self._native.skipped

    @property
    def classes(self):
        """The names of the labels; empty where there are none."""
        return self._native.classes

    def name(self, index):
        """What errors call the sample: its path in the folder or archive."""
        return self._native.name(index)

    def caption(self, index):
        """The sample's text; "" where there is none."""
        return self._native.caption(index)

    def metadata(self, index):
        """The sample's row of metadata, a dict; empty where there is none."""
        import json

        row = self._native.metadata(index)
        return json.loads(row) if row else {}

    def info(self, index):
        """What the header of the sample's file says, as image_info."""
        return self._native.info(index)

    def picture(self, index):
        """The picture, uint8 [C, H, W], before transform."""
        return self._native.picture(index)


def _native_transform(transform):
    return transform if isinstance(transform, _data.Transform) else None


class ImageFolder(_ImageDataset):
    """The pictures of a folder and of those below it.

    What belongs to a picture is said by the first of these that is there: metadata.jsonl or metadata.csv (column
    file_name, and the text under caption_column: by default text, caption or prompt); picture.txt beside picture.png;
    the names of the first subfolders, which become `classes` and give labels.

    mode: "RGB", "RGBA", "L", "LA" or "keep". Raises ValueError for a missing folder, one without pictures, a
    caption_column that is not there (naming those that are), and pictures without a caption file where others have one,
    unless allow_missing_captions.

    >>> sf.data.write_image("red.png", sf.zeros(3, 8, 6, dtype=sf.uint8))
    >>> images = sf.data.ImageFolder(".", sf.data.transforms.ToTensor())
    >>> images[0]["image"].shape
    scaffolding.Size([3, 8, 6])
    """

    def __init__(
        self,
        root,
        transform=None,
        *,
        mode="RGB",
        caption_column=None,
        allow_missing_captions=False,
        apply_exif_orientation=True,
        max_pixels=None,
    ):
        native = _data.image_folder(
            os.fspath(root),
            mode,
            apply_exif_orientation,
            max_pixels,
            caption_column or "",
            allow_missing_captions,
            _native_transform(transform),
        )
        super().__init__(native, transform)


class WebDataset(_ImageDataset):
    """Tar archives of samples key.jpg, key.txt, key.json, key.cls, or of pictures and a metadata.jsonl; not unpacked,
    in any order.

    urls: a path or several; each may hold a range (shard-{000..012}.tar) or be a folder of tars.
    Other arguments as ImageFolder's;
    caption_column is a key of the .json files or a column of metadata.jsonl.

    >>> samples = sf.data.WebDataset("shard-{000..012}.tar")  # doctest: +SKIP
    >>> samples[0]["text"]  # doctest: +SKIP
    """

    def __init__(
        self,
        urls,
        transform=None,
        *,
        mode="RGB",
        caption_column=None,
        allow_missing_captions=False,
        apply_exif_orientation=True,
        max_pixels=None,
    ):
        paths = [os.fspath(u) for u in ([urls] if isinstance(urls, (str, os.PathLike)) else urls)]
        native = _data.web_dataset(
            paths,
            mode,
            apply_exif_orientation,
            max_pixels,
            caption_column or "",
            allow_missing_captions,
            _native_transform(transform),
        )
        super().__init__(native, transform)


class ImageFiles(_ImageDataset):
    """The files named, with a caption each or none at all.

    >>> sf.data.write_image("red.png", sf.zeros(3, 8, 6, dtype=sf.uint8))
    >>> sf.data.ImageFiles(["red.png"], captions=["a red square"])[0]["text"]
    'a red square'
    """

    def __init__(
        self, paths, captions=None, transform=None, *, mode="RGB", apply_exif_orientation=True, max_pixels=None
    ):
        paths = [os.fspath(p) for p in paths]
        super().__init__(
            _data.image_files(
                paths, list(captions or []), mode, apply_exif_orientation, max_pixels, _native_transform(transform)
            ),
            transform,
        )


class VideoFolder(Dataset):
    """Clips of the videos of a folder and of those below it, with their captions: (frames, caption), frames uint8
    [3, num_frames, H, W], or what transform makes of them, caption "" where there are none.

    num_frames, frame_stride: a clip is every frame_stride-th frame. size: n makes the shorter side n; (height, width):
    resized to cover it, and the middle cut out. random_start: a clip begins anywhere, by the random numbers of the
    loader's generator, else at the first frame. transform: one of scaffolding.data.transforms is applied to each frame
    [3, H, W], with the same random numbers for all of a clip; any other callable to the clip.

    What says the captions is the first of these that is there: metadata.jsonl or metadata.csv (column file_name, which
    may name a folder of pictures, and the text under caption_column: by default text, caption or prompt); clip.txt or
    clip.json beside clip.mp4.

    Raises ValueError for a missing folder, one without videos, a caption_column that is not there, and videos without a
    caption file where others have one, unless allow_missing_captions. A video that is damaged or too short is a
    BrokenSample, which a DataLoader skips.

    >>> clips = sf.data.VideoFolder("clips", num_frames=16, size=(64, 64))  # doctest: +SKIP
    >>> frames, caption = clips[0]  # doctest: +SKIP
    """

    def __init__(
        self,
        root,
        num_frames=16,
        frame_stride=1,
        size=None,
        transform=None,
        *,
        random_start=True,
        interpolation="bilinear",
        caption_column=None,
        allow_missing_captions=False,
        max_pixels=None,
    ):
        self.transform = transform
        self._python_transform = transform if transform is not None and _native_transform(transform) is None else None
        self._native = _data.VideoFolder(
            os.fspath(root),
            num_frames,
            frame_stride,
            () if size is None else (size,) if isinstance(size, int) else tuple(size),
            interpolation,
            random_start,
            _native_transform(transform),
            caption_column or "",
            allow_missing_captions,
            max_pixels,
        )

    def __len__(self):
        return len(self._native)

    def __getitem__(self, index):
        frames, caption = self._native.get(index + len(self) if index < 0 else index)
        return frames if self._python_transform is None else self._python_transform(frames), caption

    def name(self, index):
        """What errors call the sample: its path in the folder."""
        return self._native.name(index)

    def path(self, index):
        """The sample's file."""
        return self._native.path(index)

    def caption(self, index):
        """The sample's text; "" where there is none."""
        return self._native.caption(index)

    def metadata(self, index):
        """The sample's row of metadata, a dict; empty where there is none."""
        import json

        row = self._native.metadata(index)
        return json.loads(row) if row else {}


class MovingIcons(Dataset):
    """Clips composed from captioned icons with transparency, one of which moves along a random smooth way over a plain
    background or one of two colours: (frames, caption, trajectories), frames uint8 [3, num_frames, size, size],
    trajectories float32 [1, num_frames, 2]: x and y in pixels of the icon's centre in each frame, which is how
    trajectories steer a clip of as many frames.

    path: a tar of pictures and a metadata.jsonl whose rows have file_name, caption and style, and may have keywords,
    group and split. icon_sizes: the least and the largest side in pixels. margin: how many pixels the centre stays away
    from the edges. splits, styles: those that are used; empty: all. left_out_groups: those that are not. The caption is
    "rocket, noto", with background_probability "rocket, noto, on a blue background" and with gradient_probability
    "rocket, noto, on a blue to pink background", from the top to the bottom; else the background is white.
    keyword_probability: that keywords stand for the caption. style_dropout: that the style is not named. All is drawn
    by the random numbers of the loader's generator.

    Raises ValueError for a tar without such rows, where nothing is left, for icons larger than the frame, and for
    probabilities that are none.

    >>> clips = sf.data.MovingIcons("icons.tar", num_frames=17, size=64)  # doctest: +SKIP
    >>> clips[0]  # doctest: +SKIP
    """

    def __init__(
        self,
        path,
        num_frames=17,
        size=64,
        *,
        icon_sizes=(20, 28),
        margin=10,
        splits=(),
        styles=(),
        left_out_groups=(),
        background_probability=0.35,
        gradient_probability=0.15,
        keyword_probability=0.1,
        style_dropout=0.05,
    ):
        self._native = _data.MovingIcons(
            os.fspath(path),
            num_frames,
            size,
            list(icon_sizes),
            margin,
            list(splits),
            list(styles),
            list(left_out_groups),
            background_probability,
            gradient_probability,
            keyword_probability,
            style_dropout,
        )

    def __len__(self):
        return len(self._native)

    def __getitem__(self, index):
        return self._native.get(index + len(self) if index < 0 else index)

    def name(self, index):
        """What errors call the icon: its path in the tar."""
        return self._native.name(index)

    def caption(self, index):
        """What the icon shows."""
        return self._native.caption(index)

    def style(self, index):
        """How it is drawn."""
        return self._native.style(index)

    def split(self, index):
        """The part of the data that it belongs to; "" where none is said."""
        return self._native.split(index)

    def drawing(self, index):
        """The icon itself in the file's size, uint8 [4, H, W] with its opacity."""
        return self._native.drawing(index)

    def texts(self):
        """Every part of a prompt once: what a tokenizer is trained on."""
        return self._native.texts()


class BucketBatchSampler(Sampler):
    """Batches whose pictures share an aspect-ratio bucket, for a DataLoader's batch_sampler.

    dataset: an ImageFolder, WebDataset or ImageFiles; its headers are read once, by num_threads threads. Samples are
    taken in RandomSampler's order (shuffle) or their own, and a batch is given out when its bucket has batch_size of
    them.

    >>> images = sf.data.ImageFolder("pictures")  # doctest: +SKIP
    >>> buckets = sf.data.AspectBuckets(area=512 * 512)
    >>> batches = sf.data.BucketBatchSampler(images, buckets, batch_size=4)  # doctest: +SKIP
    >>> loader = sf.data.DataLoader(images, batch_sampler=batches)  # doctest: +SKIP
    """

    def __init__(self, dataset, buckets, batch_size, shuffle=True, drop_last=False, generator=None, num_threads=2):
        _positive("BucketBatchSampler", "batch_size", batch_size)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.bucket_of = dataset._native.buckets(buckets, num_threads)
        self.sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)

    def __iter__(self):
        return iter(_data.bucket_batches(list(self.sampler), self.bucket_of, self.batch_size, self.drop_last))

    def __len__(self):
        counts = {}
        for b in self.bucket_of:
            counts[b] = counts.get(b, 0) + 1
        return sum(
            n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size
            for n in counts.values()
        )

    def state_dict(self):
        return {"sampler": self.sampler.state_dict()}

    def load_state_dict(self, state_dict):
        """Goes on from a state_dict()."""
        self.sampler.load_state_dict(state_dict["sampler"])
