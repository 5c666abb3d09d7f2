"""Every argument of what C++ registers, of optimizers, schedules, data sets and samplers is described in its document,
and what arguments/ says is said of something.
"""

import enum
import importlib
import inspect
import pathlib
import re

import pytest
from test_docstring_examples import KERNELS, PLACES, WITHOUT, is_function

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


# Public places beside those whose names have examples.
MORE = """scaffolding.cuda.amp scaffolding.distributed.algorithms.join scaffolding.nn.attention
scaffolding.nn.parallel"""
NOT_CALLED = {  # by users: of these names nothing, or of these classes the constructor is left out
    **{n: why for n, why in WITHOUT.items() if why.startswith(("not for", "bases", "layers, models", "the functions"))},
    **dict.fromkeys("GemmaTokenizer PipelineRun ProcessGroup Qwen2Tokenizer".split(), "functions make them"),
}
UNSAID = {  # methods
    "native_forward": "the arguments of forward, as C++ takes them, and no others call it",
    "Function.backward": "its document is the class's",
    **dict.fromkeys(
        """ModuleDict.get ModuleDict.pop ModuleList.pop ParameterDict.fromkeys ParameterDict.get ParameterDict.pop
        ParameterDict.setdefault Sequential.extend Sequential.pop""".split(),
        "as dict and list have them",
    ),
}


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
    text = re.sub(r"(?m)^\w+\(.*\)( -> .*)?$", "", document.split(">>>")[0])  # without signatures
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


def is_own(value):
    return str(getattr(value, "__module__", "")).startswith("scaffolding")


def parameters_of(value, bound):
    try:
        listed = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):  # a class that is not made by a call
        return []
    return [p.name for p in listed[bound:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def calls_of(name, value):
    """(name, parameters, what is said of them) of a function, or of a class and its methods."""
    if not inspect.isclass(value):
        said = inspect.getdoc(value) or ""
        if name.endswith("_") and hasattr(sf, name):  # which goes by the function that does not write over its argument
            said += "\n" + (inspect.getdoc(getattr(sf, name[:-1], None)) or "")
        yield name, parameters_of(value, 0), said
        return
    own = inspect.getdoc(value) or ""
    if name not in NOT_CALLED and not issubclass(value, (enum.Enum, BaseException)):
        made = value.__init__ if inspect.isfunction(value.__init__) else None
        yield name, parameters_of(value, 0), own + "\n" + (inspect.getdoc(made) or "")
    for member in dir(value):
        kind = inspect.getattr_static(value, member)
        owner = next((c for c in value.__mro__ if member in vars(c)), object)
        method = getattr(value, member)
        plain = inspect.isroutine(method) or type(method).__name__ in ("OpFunction", "nb_method", "LayerForward")
        if member.startswith("_") or member in KERNELS.split() or not plain or not is_own(owner):
            continue
        said = inspect.getdoc(method) or ""
        if owner is sf.Tensor:  # whose methods are the functions of their names
            functions = [getattr(sf, n, None) for n in (member, member.rstrip("_"))]
            said += "\n".join(["", *(inspect.getdoc(f) for f in functions if is_function(f) and f.__doc__)])
        bound = not isinstance(kind, (staticmethod, classmethod))
        if member not in UNSAID and f"{owner.__name__}.{member}" not in UNSAID:
            yield f"{owner.__name__}.{member}", parameters_of(method, bound), said


def calls_in(place):
    module = importlib.import_module(place)
    for name in getattr(module, "__all__", dir(module)):
        value = getattr(module, name)
        if name.startswith("_") or not is_own(value) or NOT_CALLED.get(name, "").startswith(("not for", "layers")):
            continue
        if inspect.isclass(value) or is_function(value):
            yield from calls_of(name, value)


@pytest.mark.parametrize("place", [*PLACES, *MORE.split()])
def test_arguments_of_functions_and_methods_are_described(place):
    missing = {called: undescribed(said, parameters) for called, parameters, said in calls_in(place)}
    assert not {called: wrong for called, wrong in missing.items() if wrong}


def test_what_is_said_of_functions_is_shown():
    shown = {
        line.strip() for place in [*PLACES, *MORE.split()] for *_, said in calls_in(place) for line in said.split("\n")
    }
    for file in ("functions", "functional", "forward"):
        general, of, _ = meanings(file)
        said = [*general.items(), *(item for entries in of.values() for item in entries.items())]
        assert not [f"{a}: {its}" for a, its in said if f"{a}: {its}" not in shown], file


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
