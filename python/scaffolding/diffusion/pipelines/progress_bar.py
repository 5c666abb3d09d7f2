"""ProgressBar: the steps of a run as one line of text."""

import sys
import time


class ProgressBar:
    """Called with (steps done, steps in all). It rewrites one line on a terminal; elsewhere, where it was asked for, it
    writes a line every few seconds.

    disable: True never writes, False always does, None (the default) on terminals only. file: where to, stderr. desc:
    text before it.
    leave: False clears the line at the end. width: characters of the bar.
    """

    def __init__(self, disable=None, file=None, desc="", leave=True, width=30, seconds=10.0):
        self.file = sys.stderr if file is None else file
        self.desc, self.leave, self.width, self.seconds = desc, leave, width, seconds
        self.terminal = bool(getattr(self.file, "isatty", lambda: False)())
        self.disable = not self.terminal if disable is None else bool(disable)
        self.begun = self.shown = time.monotonic()

    def __call__(self, done, total):
        now = time.monotonic()
        if done == 0:
            self.begun = self.shown = now
        last = done >= total
        if self.disable or (not self.terminal and not last and now - self.shown < self.seconds):
            return
        self.shown = now
        line = self.text(done, total, now - self.begun)
        if not self.terminal:
            self.file.write(line + "\n")
        else:
            end = "" if not last else "\n" if self.leave else "\r" + " " * len(line) + "\r"
            self.file.write("\r" + line + end)
        self.file.flush()

    def text(self, done, total, elapsed):
        """The line after `elapsed` seconds."""
        full = self.width * done // max(total, 1)
        line = f"{self.desc + ': ' if self.desc else ''}[{'#' * full}{'.' * (self.width - full)}] {done}/{total} steps"
        if done > 0:
            each = elapsed / done
            left = each * (total - done)
            pace = f"{each:.2f} s/step" if each >= 1 else f"{1 / max(each, 1e-9):.2f} steps/s"
            line += (
                f", {pace}, {int(left) // 60}:{int(left) % 60:02d} left"
                if done < total
                else f", {pace}, {elapsed:.1f} s"
            )
        return line


class ShowsProgress:
    """What pipelines have that show their steps."""

    def progress_bar(self, total):
        """A bar for a run of `total` steps, as set_progress_bar_config says."""
        bar = ProgressBar(**self._progress_bar_config)
        bar(0, total)
        return bar

    def set_progress_bar_config(self, disable=None, file=None, desc="", leave=True, **others):
        """disable: True never shows a bar, False always, None on terminals only. file: where to, stderr. desc:
        text before it.
        """
        self._progress_bar_config = {"disable": disable, "file": file, "desc": desc, "leave": leave}
