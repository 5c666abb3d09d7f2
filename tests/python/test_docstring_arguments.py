"""Every argument of what C++ registers, of optimizers, schedules, data sets and samplers is described in its document,
and what arguments/ says is said of something.
"""

import inspect
import pathlib
import re

import pytest
from test_docstring_examples import KERNELS, is_function

import scaffolding as sf
from scaffolding import _core, diffusion, nn, optim
from scaffolding._documents import _FILES, meaning, meanings

CLASSES = {
    "nn": {n: getattr(nn, n) for n in dir(nn) if hasattr(_core, "_layer_" + n)}
    | {
        n: getattr(nn, n)
        for n in "RNN LSTM GRU RNNCell LSTMCell GRUCell Transformer SyncBatchNorm DataParallel".split()
    },
    "models": {n: getattr(sf.models, n) for n in sf.models.MODEL_CLASSES},
    "pipelines": {
        n: c for n, c in vars(diffusion).items() if hasattr(c, "_entry_name") or n == "LTX2LatentUpsamplePipeline"
    },
    "optim": {
        n: c
        for n, c in [(n, getattr(module, n)) for module in (optim, optim.lr_scheduler) for n in dir(module)]
        if inspect.isclass(c) and issubclass(c, (optim.Optimizer, optim.lr_scheduler.LRScheduler))
    },
    "classes": {n: getattr(sf.data, n) for n in "BucketBatchSampler ImageFiles ImageFolder VideoFolder".split()}
    | {n: getattr(sf.utils.data, n) for n in "BatchSampler DataLoader RandomSampler TensorDataset".split()},
}
BASES = ("Optimizer", "LRScheduler", "_LambdaScheduler", "_Combined")  # nobody makes them


def operations():
    """{name: function} of the ops that have a public name."""
    found = {}
    for module in (sf, nn.functional):
        for name in dir(module):
            value = getattr(module, name)
            if not name.startswith("_") and type(value).__name__ == "OpFunction":
                found.setdefault(name, value)
    return found


def undescribed(document, parameters):
    """Parameters that neither stand in the text in front of the example nor have a line under Args."""
    lines = document.split(">>>")[0].split("\n")
    text = "\n".join(lines[1:] if re.match(r"\w+\(", lines[0]) else lines)
    return [p for p in parameters if not p.startswith("_") and not re.search(rf"\b{p}\b", text)]


def test_arguments_of_ops_are_described():
    found = operations()
    assert len(found) > 430
    missing = {}
    for name, function in found.items():
        if name in KERNELS.split() or function.__name__ in KERNELS.split():
            continue
        assert is_function(function)
        if wrong := undescribed(function.__doc__, inspect.signature(function).parameters):
            missing[name] = wrong
    assert not missing


@pytest.mark.parametrize("subject", CLASSES)
def test_arguments_of_classes_are_described(subject):
    assert len(CLASSES[subject]) > 7
    missing = {}
    for name, made in CLASSES[subject].items():
        parameters = [p for p in inspect.signature(made).parameters if p not in ("args", "kwargs")]
        if name not in BASES and (wrong := undescribed(made.__doc__, parameters)):
            missing[name] = wrong
    assert not missing


def parameters_of_all():
    """{name: parameters} of ops, in place or not, and of classes of nn."""
    found = {}
    for name, function in operations().items():
        for known in (name, function.__name__, name.rstrip("_"), function.__name__.rstrip("_")):
            found.setdefault(known, set()).update(inspect.signature(function).parameters)
    for name in dir(nn):
        if inspect.isclass(value := getattr(nn, name)) and issubclass(value, (nn.Module, sf.Tensor)):
            try:
                found[name] = set(inspect.signature(value).parameters)
            except ValueError:  # one that is not made by a call
                pass
    return found


def test_what_is_said_is_said_of_something():
    """A name in brackets is one, and an argument under it one of its arguments or of those that take over from it."""
    functions = parameters_of_all()
    for file in ("ops", "nn"):
        _, of, taken = meanings(file)
        assert not [n for n in [*of, *taken, *taken.values()] if n not in functions]
        for name, entries in of.items():
            heirs = [m for m, source in meanings("nn")[2].items() if source == name]
            alike = [n for n in of if of[n].keys() == entries.keys()]  # of one line in brackets
            assert not entries.keys() - set().union(*(functions[n] for n in [*alike, *heirs])), name
    for subject in ("models", "pipelines", "optim", "classes"):
        classes = [*CLASSES[subject].values(), optim.swa_utils.AveragedModel, sf.data.WebDataset, sf.data.RowWriter]
        classes += [c for c in vars(sf.utils.data).values() if inspect.isclass(c) and c.__module__ != "typing"]
        assert not meanings(subject)[0].keys() - set().union(*(inspect.signature(c).parameters for c in classes))


def test_a_section_is_nearer_than_what_is_said_everywhere():
    assert meaning("ops", "embedding", "input").startswith("row numbers")
    assert meaning("nn", "Conv2d", "padding") == meaning("ops", "conv2d", "padding")
    assert meaning("nn", "Conv2d", "bias") != meaning("ops", "conv2d", "bias")
    assert meaning("ops", "softmax", "nothing") is None
    files = (pathlib.Path(sf.__file__).parent / "arguments").glob("*.txt")
    assert {f.stem for f in files} == {name for names in _FILES.values() for name in names}


def test_documents_keep_their_order():
    """The text, the arguments, the example, once each; of subclasses of users nothing is said that they do not say."""
    for made in (sf.softmax, nn.Conv2d, optim.SGD, nn.LSTM, sf.models.UNet2DConditionModel):
        text = made.__doc__
        assert text.count("\nArgs:\n") == 1 and 0 < text.index("\nArgs:\n") < text.index("\n>>> ")

    class Mine(optim.SGD):
        pass

    assert Mine.__doc__ is None
