"""Golden files of LoRA: adapters for tiny networks in each kind of file, and what diffusers with PEFT make of them.

    python tests/golden/make_golden_lora.py        # with torch, diffusers, transformers, peft

Writes lora/: see lora_cases.py.
"""

import copy
import inspect
import shutil
import tempfile
from pathlib import Path

import diffusers
import numpy as np
import peft
import torch
import transformers
from lora_adapters import (
    ADAPTERS,
    CALL,
    FIXTURE,
    NETWORKS,
    OWN,
    PARTS,
    PIPELINES,
    adapted,
    name_in_files,
    parts_of,
    pipeline,
    taken,
    write_adapter,
    write_folder,
    write_mid,
)
from lora_cases import FOLDER, PACKED, weighted
from lora_formats import joined, peft_keys, rank_of, without_alpha
from model_cases import arguments_of, floats, outputs_of, thinned
from model_fixture import plain, signature, text_of
from packed import write_json, write_packed, write_packed_folder
from pipeline_cases import levels_of
from safetensors.numpy import save
from safetensors.torch import load_file

METHODS = (
    "load_lora_weights",
    "lora_state_dict",
    "set_adapters",
    "get_active_adapters",
    "get_list_adapters",
    "enable_lora",
    "disable_lora",
    "delete_adapters",
    "unload_lora_weights",
    "fuse_lora",
    "unfuse_lora",
    "save_lora_weights",
    "set_lora_device",
)
METHODS_OF_MODELS = (
    "load_lora_adapter",
    "save_lora_adapter",
    "set_adapters",
    "set_adapter",
    "active_adapters",
    "disable_adapters",
    "enable_adapters",
    "disable_lora",
    "enable_lora",
    "delete_adapters",
    "fuse_lora",
    "unfuse_lora",
    "unload_lora",
)
# Whatever else ours takes or leaves out is said here, for test_lora.py.
STRICT = {"strict": "ours: keys that fit nothing are an error unless it is False"}
DIFFERENCES = {"load_lora_weights": STRICT, "load_lora_adapter": STRICT}
MID = ("down_blocks.1.resnets.0.conv1", "up_blocks.0.upsamplers.0.conv", "up_blocks.1.resnets.1.conv2")

# ---- the cases


def load(name, as_name=None, **keywords):
    """`name` is of the family at hand: see with_family."""
    return ["load_lora_weights", [{"file": name}], {"adapter_name": as_name or name.partition("_")[0], **keywords}]


def do(method, *arguments, **keywords):
    return [method, list(arguments), keywords]


STYLE, WHOLE, CONVS = (load(name) for name in ("style", "whole", "convs"))
BOTH, TWO = ["style", "whole"], [STYLE, WHOLE, do("set_adapters", ["style", "whole"], [0.7, 0.4])]
HALF = {"cross_attention_kwargs": {"scale": 0.5}}
BLOCKS = {"down": 0.2, "mid": 0.5, "up": {"block_0": [0.9, 0.1]}}


def cases_of(family):
    """(name, steps, further keywords of the call or of the case)"""
    xl = family == "xl"
    if family == "sd2":
        yield from cases_of_2()
        return
    yield "bare", [], {}
    yield "style", [STYLE], {}
    for kind in ("script", "processor", "kohya", "original"):
        yield f"style_{kind}", [load(f"style_{kind}")], {"same": "style"}
    yield "whole", [WHOLE], {}
    yield "whole_original", [load("whole_original")], {"same": "whole"}
    yield "peft_unet", [load("peft_unet")], {}
    yield "without_a_name", [do("load_lora_weights", {"file": "style"})], {"same": "style"}
    yield "half_by_call", [STYLE], {"call": HALF}
    yield "half_by_weight", [STYLE, do("set_adapters", "style", 0.5)], {"same": "half_by_call"}
    yield "scale_of_nothing", [STYLE], {"call": {"cross_attention_kwargs": {"scale": 0.0}}, "same": "bare"}
    yield "two_loaded", [STYLE, WHOLE], {"same": "whole"}
    yield "two", TWO, {}
    yield "one_of_two", [*TWO, do("set_adapters", ["style"])], {"same": "style"}
    components = {"unet": 0.3, "text_encoder": 0.9} | ({"text_encoder_2": 0.0} if xl else {})
    yield "by_component", [WHOLE, do("set_adapters", "whole", components)], {}
    yield "by_block", [STYLE, do("set_adapters", ["style"], {"unet": BLOCKS})], {}
    yield "disabled", [STYLE, do("disable_lora")], {"same": "bare"}
    yield "enabled", [STYLE, do("disable_lora"), do("enable_lora")], {"same": "style"}
    yield "fused_at_strength", [STYLE, do("fuse_lora", lora_scale=0.2)], {}
    yield "fused_two", [*TWO, do("fuse_lora", adapter_names=BOTH)], {"same": "two"}
    yield "unfused", [STYLE, do("fuse_lora"), do("unfuse_lora")], {"same": "style"}
    ended = [do("fuse_lora"), do("unfuse_lora"), do("unload_lora_weights")]
    yield "unfused_and_unloaded", [*TWO, *ended], {"same": "bare"}
    if xl:
        return
    yield "whole_kohya", [load("whole_kohya")], {"same": "whole"}
    yield "convs", [CONVS], {}
    yield "alphas", [load("alphas_kohya")], {"theirs": "diffusers gives attention the alpha that most layers have"}
    yield "mid", [load("mid_kohya")], {"theirs": "diffusers does not know lora_mid"}
    yield "peft_text_encoder", [load("peft_text_encoder")], {}
    yield "two_without_names", [do("load_lora_weights", {"file": f}) for f in BOTH], {"same": "whole"}
    yield "two_at_weight_one", [STYLE, WHOLE, do("set_adapters", BOTH)], {}
    yield "two_by_call", TWO, {"call": HALF}
    yield "three", [*TWO, CONVS, do("set_adapters", [*BOTH, "convs"], [0.5, 1.25, -0.5])], {}
    yield "unet_alone", [STYLE, do("set_adapters", "style", {"unet": 1.0, "text_encoder": 0.0})], {}
    mixed = [{"unet": 0.5, "text_encoder": 1.5}, 0.25]
    yield "by_component_of_two", [STYLE, WHOLE, do("set_adapters", BOTH, mixed)], {}
    resnets = {"unet": {"down": {"block_1": 0.3}, "mid": 0.0, "up": 0.6}}
    yield "by_block_of_resnets", [CONVS, do("set_adapters", "convs", resnets)], {}
    yield "by_block_of_two", [STYLE, CONVS, do("set_adapters", ["style", "convs"], [{"unet": {"up": 0.2}}, 0.6])], {}
    yield "deleted", [*TWO, do("delete_adapters", "whole"), do("set_adapters", "style")], {"same": "style"}
    yield "deleted_all", [*TWO, do("delete_adapters", BOTH)], {"same": "bare"}
    yield "deleted_and_loaded", [STYLE, do("delete_adapters", "style"), load("whole", "style")], {"same": "whole"}
    yield "unloaded", [*TWO, do("unload_lora_weights")], {"same": "bare"}
    yield "unloaded_and_loaded", [WHOLE, do("unload_lora_weights"), STYLE], {"same": "style"}
    yield "fused", [STYLE, do("fuse_lora")], {"same": "style"}
    yield "fused_checked", [STYLE, do("fuse_lora", safe_fusing=True)], {"same": "style"}
    yield "fused_and_unloaded", [STYLE, do("fuse_lora"), do("unload_lora_weights")], {"same": "style"}
    yield "fused_unet", [STYLE, do("fuse_lora", components=["unet"])], {"same": "style"}
    only = [do("fuse_lora", components=["unet"]), do("unload_lora_weights")]
    yield "fused_unet_and_unloaded", [STYLE, *only], {"same": "unet_alone"}
    yield "fused_and_another", [STYLE, do("fuse_lora"), do("unload_lora_weights"), CONVS], {}
    one_by_one = [do("fuse_lora", adapter_names=[name]) for name in BOTH]
    yield "fused_one_by_one", [*TWO, *one_by_one], {"same": "two"}
    unfused = do("unfuse_lora", components=["text_encoder"])
    yield "unfused_text_encoder", [STYLE, do("fuse_lora"), unfused], {"same": "style"}


def cases_of_2():
    """What 2.x has that 1.x has not is in layers and their names."""
    yield "bare", [], {}
    yield "style", [STYLE], {}
    yield "whole", [WHOLE], {}
    for name in ("style", "whole"):
        for kind in ("kohya", "original"):
            yield f"{name}_{kind}", [load(f"{name}_{kind}")], {"same": name}
    yield "peft_unet", [load("peft_unet")], {}
    yield "by_call", TWO, {"call": HALF}
    yield "by_block", [STYLE, do("set_adapters", ["style"], {"unet": BLOCKS})], {}
    yield "fused", [STYLE, do("fuse_lora")], {"same": "style"}
    yield "unfused", [STYLE, do("fuse_lora"), do("unfuse_lora")], {"same": "style"}
    yield "disabled", [STYLE, do("disable_lora")], {"same": "bare"}


def with_family(value, family):
    """Names of files made whole: "style" is "sd/style.safetensors"."""
    if isinstance(value, list):
        return [with_family(v, family) for v in value]
    if not isinstance(value, dict):
        return value
    if list(value) == ["file"]:
        name = f"{family}/{value['file']}"
        return {"file": name if (FOLDER / name).is_dir() else name + ".safetensors"}
    return {k: with_family(v, family) for k, v in value.items()}


def folded(family, adapter):
    """What diffusers is given where it cannot read a file: the same update with alphas in B."""
    return joined(peft_keys(without_alpha(parts_of[family, adapter])))


def picture(pipe, call):
    return pipe(generator=torch.Generator("cpu").manual_seed(0), output_type="np", **CALL, **call).images


def differing(a, b):
    """In levels of 255."""
    return 255 * np.abs(a - b)


def run_case(family, name, steps, more, pictures):
    steps = with_family(steps, family)
    pipe = pipeline(family)
    if "theirs" in more:
        pipe.load_lora_weights(folded(family, name), adapter_name=name)
    else:
        taken(pipe, steps)
    case = {"name": f"{family}/{name}", "family": family, "steps": steps, **more}
    case |= {"active": pipe.get_active_adapters(), "list": pipe.get_list_adapters(), "fused": sorted(pipe.fused_loras)}
    made = picture(pipe, more.get("call", {}))
    if "same" in more:
        case["same"] = f"{family}/{more['same']}"
        worst = differing(made, pictures[case["same"]]).max()
        assert worst <= 1, f"{case['name']} is {worst} of 255 away from {case['same']}"
        return case
    for other, there in pictures.items():
        if other.startswith(family + "/"):
            mean = differing(made, there).mean()
            assert mean > 2, f"{case['name']} and {other} differ by {mean:.2f} of 255"
    clipped = float(((made == 0) | (made == 1)).mean())
    assert clipped < 0.5, f"{case['name']}: {clipped:.0%} of the values are black or white"
    pictures[case["name"]] = made
    return case | {"shape": list(made.shape)}


# ---- one layer, one network


def modules_of(pipe, adapter_name):
    """{component: {module: [rank, scale, norm of the update]}} as PEFT has them."""
    out = {}
    for component in pipe._lora_loadable_modules:
        layers = {
            name_in_files(component, module): [
                layer.r[adapter_name],
                round(layer.scaling[adapter_name], 7),
                float(f"{float(layer.get_delta_weight(adapter_name).double().norm()):.6g}"),
            ]
            for module, layer in adapted(getattr(pipe, component)).items()
            if adapter_name in layer.r
        }
        out |= {component: layers} if layers else {}
    return out


def adapter_row(family, adapter, files):
    """The first file's layers; the others must have the same updates."""
    rows = []
    for file in files:
        theirs = family == "sd" and adapter in ("mid", "alphas")
        pipe = pipeline(family)
        if theirs:
            pipe.load_lora_weights(folded(family, adapter), adapter_name="a")
        else:
            taken(pipe, with_family([load(file, "a")], family))
        rows.append(modules_of(pipe, "a"))
        for component, layers in rows[0].items():
            assert set(layers) == set(rows[-1][component]), (file, component)
            for module, (rank, _, norm) in layers.items():
                assert rows[-1][component][module][0] == rank, (file, module)
                assert abs(rows[-1][component][module][2] - norm) <= 1e-5 * norm, (file, module, norm)
        assert set(rows[0]) == set(rows[-1]) == set(parts_of[family, adapter])
    names = [with_family({"file": file}, family)["file"] for file in files]
    return {"files": names, "modules": rows[0]}


def beside(weight, a, b, scale):
    """A forward hook: what a layer's adapter adds to its output, by the formula."""

    def hook(module, inputs, output):
        x = inputs[0]
        if x.ndim == 4:
            low = torch.nn.functional.conv2d(x, a, None, module.stride, module.padding)
            return output + weight * scale * torch.nn.functional.conv2d(low, b)
        return output + weight * scale * (x @ a.T @ b.T)

    return hook


def by_hand(family, component, adapters, call):
    model = copy.deepcopy(PARTS[NETWORKS[family][component]]).double()
    names = {name_in_files(component, name): module for name, module in model.named_modules()}
    for _, file, weight in adapters:
        source = Path(file).stem.partition("_")[0]
        for module, (a, b, alpha) in parts_of[family, source].get(component, {}).items():
            names[module].register_forward_hook(beside(weight, a.double(), b.double(), alpha / rank_of(a)))
    return call(model)


OUTPUTS = (
    ("whole", "sd", "unet", [["whole", "whole", 1.0]]),
    ("style", "sd", "unet", [["style", "style_kohya", 1.0]]),
    ("two", "sd", "unet", [["style", "style", 0.7], ["whole", "whole_original", 0.4]]),
    ("alphas", "sd", "unet", [["alphas", "alphas_kohya", 1.0]]),
    ("mid", "sd", "unet", [["mid", "mid_kohya", -1.5]]),
    ("whole", "sd", "text_encoder", [["whole", "whole", 1.0]]),
    ("two", "sd", "text_encoder", [["style", "style", 0.7], ["whole", "whole", 0.4]]),
    ("two", "sd2", "unet", [["style", "style", 0.7], ["whole", "whole_kohya", 0.4]]),
    ("two", "sd2", "text_encoder", [["style", "style_kohya", 0.7], ["whole", "whole", 0.4]]),
    ("whole", "xl", "unet", [["whole", "whole", 1.0]]),
    ("two", "xl", "unet", [["style", "style", 0.7], ["whole", "whole_original", 0.4]]),
    ("two", "xl", "text_encoder_2", [["style", "style", 0.7], ["whole", "whole", 0.4]]),
)


def arguments_for(family, component):
    if component.startswith("text"):
        return {"input_ids": [[529, *range(3, 300, 33), 530]]}
    width = 64 if family == "xl" else 32
    given = {"sample": floats(1, 4, 8, 8), "timestep": 437, "encoder_hidden_states": floats(1, 7, width)}
    if family == "xl":
        sizes = [[64.0, 48.0, 4.0, 8.0, 40.0, 40.0]]
        given["added_cond_kwargs"] = {"dict": {"text_embeds": floats(1, 32), "time_ids": sizes}}
    return given


def run_output(name, family, component, adapters, tensors):
    adapters = [[n, with_family({"file": f}, family)["file"], w] for n, f, w in adapters]
    row = {"name": f"{family}/{component}/{name}", "family": family, "component": component, "adapters": adapters}
    row["arguments"] = arguments_for(family, component)

    def call(model):
        def make(path, array, by_rule):
            return torch.from_numpy(array).to(model.dtype) if by_rule else torch.from_numpy(array)

        with torch.no_grad():
            return next(iter(outputs_of(model(**arguments_of(row, make)), torch.Tensor).values())).numpy()

    pipe, steps = pipeline(family), weighted(adapters)
    if name in ("alphas", "mid"):
        pipe.load_lora_weights(folded(family, name), adapter_name=name)
        steps = steps[1:]
    theirs = call(getattr(taken(pipe, steps), component))
    exact, bare = (by_hand(family, component, a, call) for a in (adapters, []))
    most = np.abs(exact).max()
    away, moved = np.abs(theirs - exact).max() / most, np.abs(bare - exact).max() / most
    assert away < 1e-5, f"{row['name']}: {away:.1e} from the formula"
    assert moved > 0.05, f"{row['name']}: {moved:.2f} from the bare network"
    row["shape"] = list(exact.shape)
    for kind, array in (("float32", theirs), ("float64", exact), ("bare", bare.astype(np.float32))):
        tensors[f"{row['name']}.{kind}"] = thinned(row["name"], array)
    return row


# ---- refusals, saved files

ERRORS = (
    ("unknown_adapter", [STYLE], do("set_adapters", "nobody")),
    ("one_unknown_of_two", [STYLE], do("set_adapters", ["style", "nobody"], [1.0, 0.5])),
    ("too_few_weights", TWO, do("set_adapters", BOTH, [1.0])),
    ("too_many_weights", [STYLE], do("set_adapters", ["style"], [1.0, 0.5])),
    ("unknown_block", [STYLE], do("set_adapters", "style", {"unet": {"up": {"block_7": 0.5}}})),
    ("too_many_weights_of_a_block", [STYLE], do("set_adapters", "style", {"unet": {"up": {"block_0": [1, 1, 1]}}})),
    ("too_many_weights_of_the_middle", [STYLE], do("set_adapters", "style", {"unet": {"mid": [1.0, 0.5]}})),
    ("set_without_any", [], do("set_adapters", "style")),
    ("deleted_unknown", [STYLE], do("delete_adapters", "nobody")),
    ("deleted_twice", [*TWO, do("delete_adapters", "whole")], do("delete_adapters", "whole")),
    ("a_name_taken", [STYLE], load("whole", "style")),
    ("swap_of_an_unknown_name", [STYLE], load("whole", hotswap=True)),
    ("fused_nowhere", [STYLE], do("fuse_lora", components=[])),
    ("fused_into_the_vae", [STYLE], do("fuse_lora", components=["vae"])),
    ("unfused_nowhere", [STYLE], do("unfuse_lora", components=[])),
    ("fused_unknown", [STYLE], do("fuse_lora", adapter_names=["nobody"])),
    ("unloaded_without_any", [], do("unload_lora_weights")),
    ("no_lora", [], do("load_lora_weights", {"tensors": {"unet.conv_in.weight": [16, 4, 3, 3]}})),
    ("without_up", [], do("load_lora_weights", {"tensors": {"lora_unet_conv_in.lora_down.weight": [2, 4, 3, 3]}})),
    ("no_file", [], do("load_lora_weights", {"file": "nothing"})),
)


def run_error(name, steps, call):
    steps, call = with_family(steps, "sd"), with_family(call, "sd")
    pipe, row = taken(pipeline("sd"), steps), {"name": name, "family": "sd", "steps": steps, "call": call}
    try:
        taken(pipe, [call])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is recorded
        message = str(error).replace(str(FOLDER), "FOLDER").split("\n")[0]
        return row | {"type": type(error).__name__, "message": message[:200]}
    return row | {"type": None, "message": None}


def run_saved(file, family):
    """diffusers' two directions: what lora_state_dict() reads of its own kind, save_lora_weights() writes again."""
    path, cls = FOLDER / with_family({"file": file}, family)["file"], PIPELINES[family]
    state, alphas = cls.lora_state_dict(path)
    components = {key.partition(".")[0] for key in state}
    layers = {c: {k.removeprefix(c + "."): t for k, t in state.items() if k.startswith(c + ".")} for c in components}
    with tempfile.TemporaryDirectory() as folder:
        cls.save_lora_weights(folder, **{f"{c}_lora_layers": tensors for c, tensors in layers.items()})
        written = load_file(Path(folder) / "pytorch_lora_weights.safetensors")
    there = load_file(path)
    assert alphas is None and written.keys() == there.keys()
    assert all(torch.equal(t, there[k]) for k, t in written.items())
    return {"name": f"{family}/{file}", "family": family, "file": str(path.relative_to(FOLDER))}


def signatures():
    found = {}
    classes = {cls: METHODS for cls in PIPELINES.values()} | {diffusers.UNet2DConditionModel: METHODS_OF_MODELS}
    for cls, wanted in classes.items():
        methods = {name: signature(inspect.unwrap(getattr(cls, name))) for name in wanted}
        for names in methods.values():
            names.pop("cls", None)
        found[cls.__name__] = methods
    return found


def main():
    for family in ADAPTERS:
        shutil.rmtree(FOLDER / family, ignore_errors=True)
    for family, adapters in ADAPTERS.items():
        for adapter, configs in adapters.items():
            if adapter.startswith("peft_"):
                ((component, config),) = configs.items()
                write_folder(family, adapter, component, config)
            else:
                write_adapter(family, adapter, configs)
    write_mid(MID)
    pictures, tensors, cases, outputs, rows = {}, {}, [], [], {}
    for family in ADAPTERS:
        files = sorted(p.name.removesuffix(".safetensors") for p in (FOLDER / family).iterdir())
        for adapter in [a for f, a in parts_of if f == family]:
            of = [f for f in files if f == adapter or (f.startswith(adapter + "_"))]
            rows[f"{family}/{adapter}"] = adapter_row(family, adapter, of)
        cases += [run_case(family, *case, pictures) for case in cases_of(family)]
    outputs = [run_output(*output, tensors) for output in OUTPUTS]
    versions = {module.__name__: module.__version__ for module in (torch, diffusers, transformers, peft)}
    document = {
        "made_by": versions,
        "networks": NETWORKS,
        "own": {name: FIXTURE.document["networks"][name] for name in OWN},
        "pipelines": {family: cls.__name__ for family, cls in PIPELINES.items()},
        "signatures": signatures(),
        "differences": DIFFERENCES,
        "call": CALL,
        "adapters": rows,
        "cases": cases,
        "outputs": outputs,
        "errors": [run_error(*error) for error in ERRORS],
        "saved": [run_saved(file, family) for family in ADAPTERS for file in ("style", "whole")],
    }
    write_packed_folder(PACKED / "adapters.tar.xz", FOLDER)
    write_json(PACKED / "lora.json.xz", text_of(plain(document)))
    kept = {name: levels_of(made) for name, made in pictures.items()}
    write_packed(PACKED / "lora.safetensors.xz", save(kept | tensors))
    files = sorted(PACKED.iterdir())
    for path in files:
        print(f"{path.stat().st_size:8} {path.name}")
    print(f"{len(cases)} cases, {len(pictures)} pictures, {sum(p.stat().st_size for p in files)} bytes")


if __name__ == "__main__":
    main()
