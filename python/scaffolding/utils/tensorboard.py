"""SummaryWriter: files that TensorBoard reads, with torch.utils.tensorboard's names."""

import os
import platform
import time

from .. import _core


class SummaryWriter:
    """Writes scalars and pictures to a new event file in log_dir (runs/<time>_<host> without one).

    purge_step: a run that goes on at that step; TensorBoard forgets what earlier files of the folder hold from it on.

    >>> with sf.utils.tensorboard.SummaryWriter("runs/a") as writer:
    ...     writer.add_scalar("loss", 0.5, 100)
    """

    def __init__(self, log_dir=None, *, purge_step=None):
        if log_dir is None:
            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S_") + platform.node())
        self.log_dir = os.fspath(log_dir)
        self._file = _core._train.EventFile(self.log_dir, 0 if purge_step is None else purge_step - 1)

    @classmethod
    def _of(cls, file):
        writer = object.__new__(cls)
        writer.log_dir, writer._file = os.path.dirname(file.path), file
        return writer

    def _open(self):
        if self._file is None:
            raise RuntimeError("SummaryWriter: it is closed")
        return self._file

    def add_scalar(self, tag, scalar_value, global_step=0):
        """scalar_value, a number, under a tag ("train/loss") at global_step."""
        self._open().add_scalars({tag: float(scalar_value)}, int(global_step))

    def add_image(self, tag, img_tensor, global_step=0, dataformats="CHW"):
        """img_tensor, a picture, uint8 or floating in [0, 1], under a tag at global_step; dataformats: "CHW", "HWC" or
        "HW"."""
        if dataformats not in ("CHW", "HWC", "HW"):
            raise ValueError(f"add_image: dataformats must be 'CHW', 'HWC' or 'HW', got {dataformats!r}")
        self._open().add_image(
            tag, img_tensor.permute(2, 0, 1) if dataformats == "HWC" else img_tensor, int(global_step)
        )

    def flush(self):
        """Everything that was added is on the disk."""
        self._open().sync()

    def close(self):
        """Ends the file; again: does nothing."""
        self._file = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
