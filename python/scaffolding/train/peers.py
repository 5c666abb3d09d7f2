"""The processes of a DistributedDataParallel that one Trainer in each of them trains together."""

import glob
import json
import os
import shutil

from .. import _core
from .._core import Generator
from ..distributed import ReduceOp, checkpoint
from ..distributed.checkpoint._peers import Peers as _Phases
from ..nn.parallel import DistributedDataParallel
from . import random_states


def peers_of(trainer, model, parts):
    """Those of a Trainer's model; None where it is trained by one process alone."""
    if isinstance(model, DistributedDataParallel):
        return Peers(trainer, model, parts)
    if parts is not None:
        raise ValueError("Trainer: parts needs a model that is a nn.parallel.DistributedDataParallel")
    return None


class Peers:
    """What the loop asks of the other processes (PeersPart in scaffolding/train/training_parts.h)."""

    def __init__(self, trainer, ddp, parts):
        self._trainer, self._ddp, self._parts = trainer, ddp, parts
        self._group = ddp.process_group
        self.leads = self._group.rank() == 0
        self.means_gradients = parts is not None
        if parts is not None:
            self.own_parts = ddp._parts_of(parts).own
        self._step = None  # of the parts that are under way
        self._random = None  # the generators' states of a checkpoint, until the run goes on

    # A step.

    def begin(self):
        states, self._random = self._random, None
        if states is not None:
            random_states.set(states, self._trainer._device)

    def before(self, i, count):
        if self._parts is None:
            self._ddp.require_backward_grad_sync = i + 1 == count  # the gradients of all travel with the last
            return
        if i == 0:
            self._step = self._ddp.parts(self._parts)
        next(self._step)

    def after(self, whole):
        self._ddp.require_backward_grad_sync = True
        if self._step is None:
            return
        step, self._step = self._step, None
        if whole:
            for _ in step:
                raise RuntimeError("Trainer: a part of the step had no batch")
        else:
            step.close()

    def agree(self, loss, stop):
        both = _core.tensor([loss, float(stop)], dtype=_core.float64)
        self._group._all_reduce(both, ReduceOp.SUM, False)
        loss, stop = both.tolist()
        return loss / self._group.size(), stop > 0

    # Checkpoints.

    def _named(self):
        """{name: what has a state} of what is the same in all processes."""
        t = self._trainer
        named = {"optimizer": t.optimizer, "scheduler": t.scheduler, "scaler": t._scaler}
        return {name: part for name, part in named.items() if part is not None}

    def _shadow(self):
        names = [name for name, _ in self._ddp.module.named_parameters()]
        return dict(zip(names, self._trainer.ema.shadow_params, strict=True))

    def _state(self, text):
        t, rank = self._trainer, self._group.rank()
        state = {"model": self._ddp.module.state_dict()}
        state |= {name: part.state_dict() for name, part in self._named().items()}
        if t.ema is not None:
            state["ema"] = self._shadow()
        if self._parts is not None:
            state["parts"] = self._ddp.parts_state_dict()
        own = {"dataloader": t.loader.state_dict(), "random_states": random_states.get(t._device)}
        own["stateful"] = {
            name: part.get_state() if isinstance(part, Generator) else part.state_dict()
            for name, part in t._stateful.items()
        }
        state["ranks"] = {rank: own}
        state["trainer"] = {"state": text, "processes": self._group.size()}
        return state

    def save(self, folder, text):
        checkpoint.save(self._state(text), folder, process_group=self._group)

    def load(self, output_dir, steps, resume):
        """(path, the loop's text, what is wrong with newer ones); the path is empty where there is none."""
        phases = _Phases(self._group)

        def listed():
            if not self.leads:
                return None
            for left in glob.glob(os.path.join(glob.escape(output_dir), "checkpoint-*.tmp")):
                shutil.rmtree(left, ignore_errors=True)  # of a run that was killed
            return sorted(steps)

        steps = phases.phase("looking for checkpoints", listed, "make output_dir a folder that all processes share")[0]
        paths = [os.path.join(output_dir, f"checkpoint-{step}") for step in steps]
        if not resume:
            if paths:
                raise ValueError(
                    f"Trainer: output_dir {output_dir} holds {os.path.basename(paths[-1])} already; pass "
                    'resume="latest" to go on from it, or choose another folder'
                )
            return "", "", []
        if resume != "latest":
            folder = resume if os.path.exists(resume) else os.path.join(output_dir, resume)
            if paths and os.path.realpath(folder) != os.path.realpath(paths[-1]):
                raise ValueError(
                    f"Trainer: resume={resume} is not the newest checkpoint that output_dir {output_dir} holds, "
                    f"{os.path.basename(paths[-1])}; remove what is newer, or choose another output_dir"
                )
            paths = [folder]
        damaged = []
        for path in reversed(paths):
            state = None

            def read():
                nonlocal state
                state = self._read(path)  # noqa: B023  (called at once)

            try:
                phases.phase("loading", read, "load an older checkpoint, or bring the file back")
            except RuntimeError as e:
                if resume != "latest":
                    raise ValueError(f"Trainer: {e}") from e
                damaged.append(str(e))
                continue
            self._put(state)
            return path, state["trainer"]["state"], damaged
        if damaged:
            raise ValueError(f"Trainer: no checkpoint in {output_dir} is whole; of the newest, {damaged[0]}")
        return "", "", []

    def _read(self, path):
        """The states of one checkpoint that this process needs."""
        trainer = checkpoint.load_state_dict(path, keys=["trainer"])["trainer"]
        before, rank, size = trainer["processes"], self._group.rank(), self._group.size()
        # By another number of processes: with parts all have rank 0's place in the data.
        source = rank if before == size else 0 if self._parts is not None else rank * before // size
        keys = ["model", *self._named(), f"ranks.{source}"]
        keys += ["ema"] if self._trainer.ema is not None else []
        keys += ["parts"] if self._parts is not None else []
        state = checkpoint.load_state_dict(path, keys=keys)
        missing = [key for key in keys if key.split(".")[0] not in state]
        if missing:
            raise RuntimeError(f"{path}: has nothing named {missing[0]!r}: it is of a run with other parts")
        state["own"] = state.pop("ranks")[source]
        place = state["own"]["dataloader"]
        if self._parts is not None and before != size and isinstance(place.get("batches"), int):
            place["batches"] = place["batches"] * before // size
        state["trainer"] = trainer
        return state

    def _put(self, state):
        t = self._trainer
        self._ddp.module.load_state_dict(state["model"])
        for name, part in self._named().items():
            part.load_state_dict(state[name])
        if t.ema is not None:
            shadow = [state["ema"][name] for name in self._shadow()]
            step = json.loads(state["trainer"]["state"])["ema_step"]
            t.ema.load_state_dict({"optimization_step": step, "shadow_params": shadow})
        if self._parts is not None:
            self._ddp.load_parts_state_dict(state["parts"])
        t.loader.load_state_dict(state["own"]["dataloader"])
        for name, part in t._stateful.items():
            saved = state["own"]["stateful"][name]
            (part.set_state if isinstance(part, Generator) else part.load_state_dict)(saved)
        self._random = state["own"]["random_states"]
