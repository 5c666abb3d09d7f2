"""Every public function and class has an example in its document, and every example prints what it says."""

import doctest
import importlib
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
    **dict.fromkeys(
        "as_matrix default_dim help_modules later norm_except_dim normed put_back take_out unit".split(),
        "not for users",
    ),
    **dict.fromkeys(
        """BatchEncoding BrokenSample Checkpoint FitResult FunctionCtx GradientStatistics KernelAverage KernelAverages
        KernelEvent MemoryPlan Node PackedSequence ParametrizationList RemovableHandle SchedulerType
        memory_format""".split(),
        "the functions that give it or take it show it",
    ),
    **dict.fromkeys(
        """clear_vram empty_cache free_memory has_bf16 max_memory_allocated mem_get_info memory_limits memory_reserved
        providers reset_peak_memory_stats units""".split(),
        "what it tells is the machine's",
    ),
    **dict.fromkeys(
        """GGUFFile hf_hub_download hires img2img list_repo_files load_from_hf load_gguf load_pipeline load_to_gpu
        model_folder run_denoise_sdxl snapshot_download txt2img_sdxl""".split(),
        "it needs the network, a GPU or weights: txt2img_sd21",
    ),
    **dict.fromkeys("adadelta adafactor adagrad adam adamax adamw asgd muon nadam radam rmsprop rprop".split(), "sgd"),
    **dict.fromkeys(
        """MultiControlNetModel SchedulerMixin cached clip_grads_with_norm_ cogvideox_loss
        compute_dream_and_update_latents convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format
        custom_bwd default_convert encode_video fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights
        get_ema_multi_avg_fn get_swa_multi_avg_fn gradgradcheck hvp load_audio once_differentiable peft_config_of
        register_optimizer_step_post_hook register_to_config remove_spectral_norm remove_weight_norm resolve_profile
        set_detect_anomaly skip_init transfer_parametrizations_and_params type_before_parametrizations
        sdxl_memory_profile unpack_sequence unpad_sequence""".split(),
        "beside it stands its like, which has one",
    ),
}


def is_function(value):
    return inspect.isroutine(value) or type(value).__name__ in ("OpFunction", "nb_func")


def is_public(value):
    """A function, or a class that is no exception, no type of old programs and no result of a call."""
    return is_function(value) or (inspect.isclass(value) and not re.search(r".(Error|Tensor|Output)$", value.__name__))


def named(names):
    return lambda value: getattr(value, "__name__", "") in names.split()


PLACES = {  # place: what must have an example there
    "scaffolding": is_public,
    **dict.fromkeys(
        """scaffolding.amp .autograd .autograd.function .autograd.functional .autograd.graph .backends.cpu .data
        .diffusion .diffusion.training_utils .distributed.checkpoint .hub .io .models .nn.grad .nn.init .nn.utils
        .nn.utils.parametrizations .nn.utils.parametrize .nn.utils.rnn .nn.video .optim .optim.functional
        .optim.lr_scheduler .optim.swa_utils .profiler .random .safetensors .special .testing .tokenizers .train
        .utils .utils.checkpoint .utils.data .utils.tensorboard""".replace(" .", " scaffolding.").split(),
        is_public,
    ),
    "scaffolding.nn.functional": is_function,
    "scaffolding.nn": inspect.isclass,
    "scaffolding.data.transforms": lambda v: v.__name__[0].isupper() and v is not sf.Tensor,
    "scaffolding.cuda": named("device_count is_available"),  # the rest needs a GPU
    "scaffolding.distributed": named(  # the rest needs several processes
        "HashStore all_gather all_gather_object all_reduce broadcast get_rank get_world_size init_device_mesh "
        "init_process_group new_group"
    ),
}


def documents(place):
    """{name: document} of a place. Functions that write over their argument go by those that do not, unless these are
    old names of theirs."""
    module = importlib.import_module(place)
    found = {}
    old = {n for n in dir(module) if str(getattr(module, n).__doc__).startswith("The old name of ")}
    for name in getattr(module, "__all__", dir(module)) if PLACES[place] is is_public else dir(module):
        value = getattr(module, name)
        own = str(getattr(value, "__module__", "")).startswith("scaffolding")
        if not name.startswith("_") and own and PLACES[place](value) and name not in WITHOUT and name not in old:
            if not name.endswith("_") or name[:-1] in old or not hasattr(module, name[:-1]):
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


@pytest.fixture
def one_process():
    sf.distributed.init_process_group("fake", store=sf.distributed.HashStore(), rank=0, world_size=1)
    yield
    sf.distributed.destroy_process_group()


@pytest.mark.usefixtures("empty_folder", "one_process")
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
    known = {name for place in PLACES for name in dir(importlib.import_module(place))}
    assert not set(WITHOUT) - known
    from scaffolding._documents import table

    assert not {name for name in table("ops") if not hasattr(sf._core, name)}
    assert not {name for name in table("nn") if not hasattr(nn, name)}
    assert not {*table("classes"), *table("data")} - known
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
    program = "import sys, scaffolding; assert not sys.modules['scaffolding._documents']._read"
    subprocess.run([sys.executable, "-c", program], check=True)
