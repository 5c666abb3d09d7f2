"""Every public function and class has an example in its document, and every example prints what it says."""

import doctest
import inspect
import re
import subprocess
import sys
import warnings

import pytest

import scaffolding as sf
from scaffolding import nn, optim

KERNELS = """cat_group_norm_silu conv2d_int8 fused_adamw_ group_norm_silu_conv2d gru_sequence linear_fp4 linear_fp8
linear_gguf linear_half linear_int8 linear_nf4 lstm_sequence rnn_sequence spatial_norm_silu upsample_conv2d
multi_head_attention_forward"""
WITHOUT = {
    **dict.fromkeys(KERNELS.split(), "layers, models and optimizers call it: theirs is the example"),
    **dict.fromkeys(
        "conj is_complex is_conj isreal positive real resolve_conj".split(), "there are no complex numbers to show"
    ),
    **dict.fromkeys("unsafe_chunk unsafe_split unsafe_split_with_sizes".split(), "chunk and split, for old programs"),
    **dict.fromkeys("upsample upsample_bilinear upsample_nearest".split(), "deprecated: interpolate"),
    **dict.fromkeys("Container NLLLoss2d NonDynamicallyQuantizableLinear".split(), "names of old programs"),
    **dict.fromkeys("RNNBase RNNCellBase".split(), "bases that nobody makes"),
    **dict.fromkeys(
        """are_deterministic_algorithms_enabled get_deterministic_debug_mode
        is_deterministic_algorithms_warn_only_enabled""".split(),
        "the functions that set it show it",
    ),
    "later": "how the package finds its names",
    "BrokenSample": "an exception",
    "SchedulerType": "get_scheduler",
}


def is_function(value):
    return inspect.isroutine(value) or type(value).__name__ in ("OpFunction", "nb_func")


PLACES = {  # place: what must have an example there
    "scaffolding": is_function,
    "scaffolding.nn.functional": is_function,
    "scaffolding.nn": inspect.isclass,
    "scaffolding.optim": inspect.isclass,
    "scaffolding.optim.lr_scheduler": inspect.isclass,
    "scaffolding.optim.swa_utils": inspect.isclass,
    "scaffolding.data": inspect.isclass,
    "scaffolding.data.transforms": lambda v: v.__name__[0].isupper() and v is not sf.Tensor,
    "scaffolding.utils.data": inspect.isclass,
    "scaffolding.diffusion": lambda v: inspect.isclass(v) and re.search("(Pipeline|Scheduler)$|^AutoPipe", v.__name__),
}


def documents(place):
    """{name: document} of a place. Functions that write over their argument go by those that do not."""
    module = sys.modules[place]
    found = {}
    for name in dir(module):
        value = getattr(module, name)
        own = str(getattr(value, "__module__", "")).startswith("scaffolding")
        if not name.startswith("_") and own and PLACES[place](value) and name not in WITHOUT:
            if not (name.endswith("_") and hasattr(module, name[:-1])):
                found[name] = inspect.getdoc(value) or ""
    return found


# What an example may use without an import.
NAMES = {"sf": sf, "nn": nn, "F": nn.functional, "optim": optim}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[-+]\d+)?")


def unit(number):
    """That of a printed number's last digit; a whole float is one whose further digits are zero."""
    digits, _, power = number.partition("e")
    whole = "." not in digits
    places = 0 if whole else len(digits.partition(".")[2]) or 4
    return 0 if whole and not power else 10.0 ** (int(power or 0) - places)


class Checker(doctest.OutputChecker):
    """Processors may round the last digit otherwise; all else is compared."""

    def check_output(self, want, got, optionflags):
        texts = [
            " ".join(NUMBER.sub("#", re.sub(r"([\[(]) +", r"\1", t.replace("<BLANKLINE>", ""))).split())
            for t in (want, got)
        ]
        numbers = [NUMBER.findall(t) for t in (want, got)]
        return texts[0] == texts[1] and all(
            ("." in w) == ("." in g) and abs(float(w) - float(g)) <= 1.01 * max(unit(w), unit(g))
            for w, g in zip(*numbers, strict=True)
        )


def failures(name, session):
    test = doctest.DocTestParser().get_doctest(session, dict(NAMES), name, None, 0)
    said = []
    sf.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctest.DocTestRunner(checker=Checker(), verbose=False).run(test, out=said.append)
    return "".join(said)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("place", PLACES)
def test_every_name_has_an_example_that_is_true(place, monkeypatch, tmp_path):
    lacking, wrong, seen = [], [], set()
    for name, document in documents(place).items():
        if ">>> " not in document:
            lacking.append(name)
        elif document not in seen:
            seen.add(document)
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            wrong.append(failures(f"{place}.{name}", document))
    assert not lacking, f"{place}: an example is missing (scaffolding/examples/, or the docstring): {lacking}"
    assert not any(wrong), "".join(wrong)


def test_a_wrong_number_is_told():
    session = ">>> sf.softmax(sf.tensor([[1., 2.]]), dim=1)\ntensor([[0.2689, 0.7{}11]])\n"
    assert not failures("right", session.format(3)) and "0.7311" in failures("wrong", session.format(4))
    assert failures("shape", ">>> sf.zeros(2, 3).shape\nscaffolding.Size([2, 4])\n")
    assert failures("dtype", ">>> sf.tensor([1])\ntensor([1.])\n")


def test_exceptions_and_entries_are_names():
    known = {name for place in PLACES for name in dir(sys.modules[place])}
    assert not set(WITHOUT) - known
    from scaffolding._examples import table

    assert not {name for name in table("ops") if not hasattr(sf._core, name)}
    assert not {name for name in table("nn") if not hasattr(nn, name)}
    assert table("nn")["ReLU"] == ">>> nn.ReLU()(sf.tensor([-1., 2.]))\ntensor([0., 2.])"


def test_functions_of_every_kind_are_looked_at():
    assert {"softmax", "eye", "stack", "asin", "max", "manual_seed"} <= set(documents("scaffolding"))


def test_documents_of_functions_layers_and_subclasses():
    assert sf.softmax.__doc__.startswith("softmax(input") and ">>> sf.softmax(" in sf.softmax.__doc__
    assert ">>> sf.relu(" in sf.relu_.__doc__ and "Writes the result" in sf.relu_.__doc__
    assert sf.eye.__doc__.count(">>> sf.eye(") == 1 and ">>> sf.softmax(" in sf.Tensor.softmax.__doc__
    assert "Convolution of" in nn.Conv2d.__doc__ and ">>> conv = nn.Conv2d(" in inspect.getdoc(nn.Conv2d)
    assert nn.Conv2d(1, 1, 1).__doc__ == nn.Conv2d.__doc__

    class Mine(nn.Conv2d):
        pass

    assert Mine.__doc__ is None


def test_importing_reads_no_examples():
    program = "import sys, scaffolding; assert not sys.modules['scaffolding._examples']._read"
    subprocess.run([sys.executable, "-c", program], check=True)
