"""ProgressBar: the steps of a run, by tqdm where it is installed, else as one line of text."""

import sys
import time


class ProgressBar:
    """Called with (steps done, steps in all). Where tqdm is installed the bar is `tqdm.auto`'s, in notebooks a widget;
    else it rewrites one line on a terminal and elsewhere, where it was asked for, writes a line every few seconds.

    disable: True never writes, False always does, None (the default) on terminals and in notebooks only. file: where
    to, stderr. desc: text before it. leave: False clears the line at the end. others: what else tqdm takes (ncols,
    position, colour, ...), without it ignored. width: characters of the own line's bar; seconds: between its lines.

    >>> sf.diffusion.ProgressBar(disable=True, desc="sampling")(1, 20)
    """

    def __init__(self, disable=None, file=None, desc="", leave=True, width=30, seconds=10.0, **others):
        self.file = sys.stderr if file is None else file
        self.desc, self.leave, self.width, self.seconds, self.others = desc, leave, width, seconds, others
        self.terminal = bool(getattr(self.file, "isatty", lambda: False)())
        self.asked = disable
        self.disable = not self.terminal if disable is None else bool(disable)
        self.begun = self.shown = time.monotonic()
        self.bar = None

    def _make_bar(self, total):
        """tqdm's bar, or None without tqdm and where nobody looks, so that it is not even imported."""
        if self.asked or (self.disable and "ipykernel" not in sys.modules):
            return None
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return None
        words = {"desc": self.desc or None, "leave": self.leave, "unit": "step", **self.others}
        return tqdm(total=total, disable=self.asked, file=None if self.file is sys.stderr else self.file, **words)

    def __call__(self, done, total):
        now = time.monotonic()
        if done == 0:
            self.begun = self.shown = now
            self.bar = self._make_bar(total)
        last = done >= total
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
            if last:
                self.bar.close()
            return
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
        text before it. others: what else tqdm takes, where it is installed (ncols, position, ...).
        """
        self._progress_bar_config = {"disable": disable, "file": file, "desc": desc, "leave": leave, **others}
