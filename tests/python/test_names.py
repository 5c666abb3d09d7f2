"""PyTorch's names: what is missed is answered with the place, the substitute or the nearest name."""

import importlib
import importlib.util
import inspect
import pathlib
import pickle
import re
import subprocess
import sys

import pytest

import scaffolding as sf
from scaffolding import _missing

ROOT = pathlib.Path(__file__).resolve().parents[2]


def caught_from(place, name):
    with pytest.raises(AttributeError) as caught:
        getattr(place, name)
    assert name in str(caught.value) and caught.value.name == name
    return caught.value


def message(place, name):
    return str(caught_from(place, name))


@pytest.mark.parametrize(
    "place, name, says",
    [
        ("nn", "Conv2D", "did you mean 'Conv2d'?"),
        ("nn", "Layernorm", "did you mean 'LayerNorm'?"),
        ("nn.functional", "softmx", "did you mean 'softmax'?"),
        ("", "set_default_dtyp", "did you mean 'set_default_dtype'?"),
        ("", "Conv2d", "there is scaffolding.nn.Conv2d"),
        ("", "DataLoader", "there is scaffolding.data.DataLoader"),
        ("", "StableDiffusionPipeline", "there is scaffolding.diffusion"),
        ("nn", "DDIMScheduler", "there is scaffolding.diffusion"),
        ("", "data_ptr", "there is Tensor.data_ptr, a method"),
        ("", "svd", "numpy.linalg"),
        ("", "sparse_coo_tensor", "sparse tensors are not here"),
        ("optim", "SparseAdam", "sf.optim.AdamW"),
        ("optim", "AdmW", "did you mean 'AdamW'?"),
        ("utils.data", "IterDataPipe", "sf.utils.data.Dataset"),
        ("cuda", "set_device", "sf.device"),
        ("diffusion", "DDIMSchedular", "did you mean 'DDIMScheduler'?"),
        ("models", "Unet2DConditionModel", "did you mean 'UNet2DConditionModel'?"),
        ("nn.video", "Conv3D", "scaffolding"),
    ],
)
def test_a_missed_name_of_a_module(place, name, says):
    module = importlib.import_module(f"scaffolding.{place}".rstrip("."))
    text = message(module, name)
    assert text.startswith(f"module '{module.__name__}' has no attribute '{name}'") and says in text, text


@pytest.mark.parametrize(
    "name, says",
    [
        ("viw", "did you mean 'view'?"),
        ("Transpose", "did you mean 'transpose'?"),
        ("to_sparse", "sparse tensors are not here"),
        ("svd", "numpy.linalg"),
        ("tensor_spilt", "did you mean 'tensor_split'?"),
        ("DataLoader", "there is scaffolding.data.DataLoader"),
    ],
)
def test_a_missed_attribute_of_a_tensor(name, says):
    for tensor in (sf.ones(2), sf.nn.Parameter(sf.ones(2))):
        text = message(tensor, name)
        assert text.startswith(f"'{type(tensor).__name__}' object has no attribute '{name}'") and says in text, text


def test_help_costs_calls_nothing():
    # with a __getattribute__ or __getattr__ of its own, Python would make a bound method for each call
    assert not {"__getattribute__", "__getattr__"} & set(vars(sf.Tensor))
    error = caught_from(sf.ones(2), "viw")
    assert str(error) == str(error) == error.args[0] and error.obj is None
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is AttributeError and "did you mean 'view'?" in str(again)


class Tensor:
    """Another library's."""

    __module__ = "torch"

    def __dlpack__(self):
        raise NotImplementedError


@pytest.mark.parametrize("operate", [lambda x, y: x + y, lambda x, y: y * x, lambda x, y: x.__itruediv__(y)])
def test_operators_say_how_to_take_over_pytorchs_tensors(operate):
    with pytest.raises(TypeError, match=r"operand must be .*got torch.Tensor; scaffolding.from_dlpack takes it over"):
        operate(sf.ones(2), Tensor())
    with pytest.raises(TypeError, match="unsupported operand"):
        sf.ones(2) + object()


def test_errors_of_properties_and_attributes_of_tensors_stay():
    class Own(sf.Tensor):
        @property
        def broken(self):
            return self.name.nothing

    own = sf.ones(2).as_subclass(Own)
    own.name = "x"
    assert own.name == "x" and getattr(own, "absent", 3) == 3 and not hasattr(own, "absent")
    with pytest.raises(AttributeError, match="'str' object has no attribute 'nothing'"):
        own.broken


def test_what_nobody_knows_is_just_missing():
    assert message(sf, "qqqzzz") == "module 'scaffolding' has no attribute 'qqqzzz'"
    error = pickle.loads(pickle.dumps(caught_from(sf.nn, "Conv2D")))
    assert type(error) is AttributeError and "did you mean 'Conv2d'?" in str(error)
    assert not hasattr(sf.nn, "qqqzzz") and not hasattr(sf, "__wrapped__")
    with pytest.raises(ImportError):
        from scaffolding.nn import Conv2D  # noqa: F401


EVERY_MODULE = """
import re, sys
import scaffolding.cuda.amp, scaffolding.nn.video, scaffolding.optim.swa_utils, scaffolding.safetensors.torch
names = [n for n in sys.modules if n.split(".")[0] == "scaffolding" and "._" not in n]
for name in names:
    try:
        sys.modules[name].StableDifusionPipeline
    except AttributeError as error:
        assert re.search(r"; did you mean '?[\\w.]*Diffusion\\w*Pipeline\\w*'?\\?$", str(error)), str(error)
    else:
        raise SystemExit(name)
print(len(names))
"""


def test_every_module_answers():
    done = subprocess.run([sys.executable, "-c", EVERY_MODULE], check=True, capture_output=True, text=True)
    assert int(done.stdout) > 100


def test_advice_names_what_there_is():
    advices = {advice for names in _missing.table().values() for advice in names.values() if advice}
    assert len(advices) > 100
    for advice in advices | set(_missing.other_names().values()):
        for path in re.findall(r"\bsf\.(\w+(?:\.\w+)*)", advice):
            found = sf
            for part in path.split("."):
                found = getattr(found, part)  # AttributeError: the advice is wrong


def test_every_name_of_pytorch_is_here_or_has_advice():
    table = _missing.table()
    assert sum(map(len, table.values())) > 2000
    bare = [(s, n) for s, names in table.items() for n, advice in names.items() if not advice]
    assert [f"{space}.{name}" for space, name in bare if not _missing.is_here(space, name)] == []


@pytest.mark.parametrize(
    "name, says",
    [
        ("sd_pipeline_from_safetensors", "from_single_file"),
        ("CudaGradientOps", "clip_grad_norm_"),
        ("GpuTensor", "device='cuda'"),
        ("cuda_add", "x + y"),
        ("models2devices", "sf.diffusion.models2devices"),
        ("txt2vid_ltx2", "sf.diffusion.LTX2Pipeline"),
        ("encode_with_gemma3", "sf.models.Gemma3TextModel"),
        ("normalize_gradient", "GradientMap.normalize"),
        ("ensure_kernel", "sf.cuda.Kernel"),
        ("matmul_nt", "x @ y.T"),
    ],
)
def test_names_of_other_interfaces(name, says):
    assert says in message(sf, name)


def test_names_of_other_interfaces_are_not_here():
    assert len(_missing.other_names()) >= 80
    for name, advice in _missing.other_names().items():
        assert advice and not hasattr(sf, name), name


def test_names_of_other_interfaces_that_are_here():
    places = _missing.other_names_here()
    assert sum(map(len, places.values())) > 200
    for place, names in places.items():
        found = sf
        for part in place.split(".")[1:]:
            found = getattr(found, part)
        assert [name for name in names if not hasattr(found, name)] == [], place


SEEDS_CALLS = {
    "diffusion.txt2img_sdxl": "prompt negative_prompt img_dim pipeline devices memory_profile unet_dtype_str "
    "download_models scheduler timesteps initial_latents num_inference_steps guidance_scale seed save_file filename "
    "metadata_path verbose",
    "diffusion.img2img": "input_image prompt img_dim model_name strength",
    "diffusion.models2devices": "model_name devices unet_dtype_str download_models",
    "diffusion.auto_devices": "model strategy",
    "diffusion.load_pipeline": "model_name m2d i2i",
    "diffusion.ToraPipeline.__call__": "prompt negative_prompt num_frames num_inference_steps height width "
    "guidance_scale output_type generator prompt_embeds negative_prompt_embeds video_flow use_dynamic_cfg eta "
    "callback_on_step_end",
    "diffusion.classifier_free_guidance": "model latents timesteps prompt_embeds negative_prompt_embeds guidance_scale",
    "diffusion.rescale_noise_cfg": "noise_pred noise_pred_text guidance_rescale",
    "diffusion.get_beta_schedule": "schedule num_timesteps beta_start beta_end",
    "diffusion.CogVideoXDPMScheduler": "num_train_timesteps beta_start beta_end beta_schedule snr_shift_scale "
    "prediction_type timestep_spacing clip_sample clip_sample_range rescale_betas_zero_snr",
    "diffusion.DiTModel": "patch_size in_channels hidden_size depth",
    "nn.video.TextToVideoPipeline": "num_frames frame_height frame_width text_embed_dim model_channels num_heads",
    "nn.video.TextToVideoPipeline.generate": "prompt num_steps guidance_scale",
    "nn.video.TextToVideoPipeline.save_video_frames": "video output_dir",
    "optim.AdamW": "params lr betas eps weight_decay",
    "nn.utils.clip_grad_norm_": "parameters max_norm norm_type",
}


@pytest.mark.parametrize("path", SEEDS_CALLS)
def test_calls_of_other_interfaces_take_their_arguments(path):
    found = sf
    for part in path.split("."):
        found = getattr(found, part)
    takes = inspect.signature(found).parameters
    assert [name for name in SEEDS_CALLS[path].split() if name not in takes] == []


def test_the_table_is_read_when_a_name_is_missed():
    code = (
        "import scaffolding as sf; assert not sf._missing._tables; "
        "assert not hasattr(sf, 'svd') and not sf._missing._tables\n"
        "try: sf.svd\n"
        "except AttributeError as e: assert 'numpy.linalg' in str(e) and sf._missing._tables\n"
        "else: raise SystemExit(1)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_page_shows_the_table():
    spec = importlib.util.spec_from_file_location("torch_names_page", ROOT / "tools" / "torch_names_page.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE.read_text() == tool.page(), "run tools/torch_names_page.py"
    counts = re.findall(r"^\| `(torch[\w.]*)` \| (\d+) \| (\d+) \| (\d+) \|$", tool.page(), re.MULTILINE)
    assert {name for name, *_ in counts} == set(_missing.table())
    assert all(int(total) == int(here) + int(missing) for _, total, here, missing in counts)
