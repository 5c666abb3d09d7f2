"""What the golden files of LoRA hold, for those who write them (make_golden_lora.py) and those who compare
(test_lora.py).

lora/adapters.tar.xz: sd/, sd2/ and xl/, adapters for the tiny networks of pipelines/stable_diffusion, and for some
as 2.x has them, whose values follow hashed_weights.py and are exact in float16. One adapter's files make the same
picture:

    style               attention's projections, in diffusers' kind with lora_adapter_metadata
    style_script        as training scripts wrote it: "to_q.lora.down", "text_model....q_proj.lora_linear_layer.down"
    style_processor     of the first release: "attn1.processor.to_q_lora.down"
    style_kohya         "lora_unet_down_blocks_...", "lora_te_..." or "lora_te1_...", "lora_te2_...", alpha
    style_original      kohya's with "lora_unet_input_blocks_..."
    whole[_kohya, _original]  what style leaves out: convolutions 1x1 and 3x3, conv_in, samplers, time_emb_proj, ff,
                        ranks and alphas by pattern
    convs               the UNet's resnets and samplers alone, "conv1.lora.down"
    mid_kohya           "lora_mid": a convolution 3x3 between two of 1x1
    alphas_kohya        an alpha of its own in each layer
    peft_COMPONENT/     PEFT's folder: adapter_model.safetensors ("base_model.model....") and adapter_config.json with
                        rank_pattern, alpha_pattern, the UNet's with use_rslora

lora/lora.json.xz:

    made_by     versions of torch, diffusers, transformers, peft
    networks    {family: {component: name of the network, scheduler or tokenizer in pipelines/stable_diffusion.json.gz}}
    own         {name: [class, config]} of the networks that are not in that file
    pipelines   {family: class}
    signatures  by class and method: {argument: {} or {"default": value}}
    differences {method: {argument: why ours differs}}
    call        the keywords of every picture's call but those of the case
    adapters    by "FAMILY/NAME": files; modules: {component: {module: [rank, scale, norm of scale * B A]}} as PEFT has
                them once the first of the files is loaded
    cases       name, family; steps: [[method, arguments, keywords]] on a fresh pipeline; call: further keywords;
                active, list, fused: what get_active_adapters(), get_list_adapters() and sorted(fused_loras) then say;
                shape: of its picture, [1, H, W, 3]; same: the case whose picture it is where it has none of its own;
                theirs: why diffusers was given something else, where it was
    outputs     name, family, component, adapters: [[name, file, weight]], arguments as model_cases.py writes them
    errors      name, family, steps, call: [method, arguments, keywords]; type and message of what diffusers raises,
                null where it says nothing
    saved       name, family, file: what save_lora_weights writes of the dicts `lora_state_dict(file)` gives

An argument {"file": name} is a path in that archive, {"tensors": {key: shape}} a dict of tensors by rule.

lora/lora.safetensors.xz: the picture of each case without `same`, pipeline_cases.levels_of() it; OUTPUT.float32 by
diffusers and PEFT, OUTPUT.float64 by hand from y = Wx + s B(Ax) and OUTPUT.bare without an adapter, thinned as
model_cases.py does.
"""

import pathlib

from hashed_weights import hashed
from packed import read_json, unpacked_folder

PACKED = pathlib.Path(__file__).parent / "lora"
_unpacked = unpacked_folder(PACKED / "adapters.tar.xz")
FOLDER = pathlib.Path(_unpacked.name)  # of sd/, sd2/ and xl/


def document():
    return read_json(PACKED / "lora.json.xz")


def networks():
    """{name: [class, config]} of every network that is named."""
    pipelines = PACKED.parent / "pipelines" / "stable_diffusion.json.gz"
    return read_json(pipelines)["networks"] | document()["own"]


def value_of(spec, make):
    """An argument. make(array) gives a tensor."""
    if isinstance(spec, list):
        return [value_of(v, make) for v in spec]
    if not isinstance(spec, dict):
        return spec
    if list(spec) == ["file"]:
        return str(FOLDER / spec["file"])
    if list(spec) == ["tensors"]:
        return {key: make(hashed(key, tuple(shape))) for key, shape in spec["tensors"].items()}
    return {name: value_of(v, make) for name, v in spec.items()}


def take(pipe, step, make, **more):
    method, arguments, keywords = step
    return getattr(pipe, method)(*value_of(arguments, make), **value_of(keywords, make), **more)


def weighted(adapters):
    """The steps that load adapters of an output's case."""
    loads = [["load_lora_weights", [{"file": file}], {"adapter_name": name}] for name, file, _ in adapters]
    return [*loads, ["set_adapters", [[name for name, _, _ in adapters], [weight for _, _, weight in adapters]], {}]]
