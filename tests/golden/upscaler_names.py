"""What other programs call the tensors of Real-ESRGAN's RRDBNet; make_golden_models_upscalers.py asks spandrel."""


def old_name(name, num_block, num_upsample):
    """Old ESRGAN's name of a tensor."""
    places = {"conv_first": "0", "conv_body": f"1.sub.{num_block}", "conv_hr": f"{3 * num_upsample + 2}"}
    places["conv_last"] = f"{3 * num_upsample + 4}"
    places |= {f"conv_up{i}": f"{3 * i}" for i in range(1, num_upsample + 1)}
    module, kind = name.rsplit(".", 1)
    if module in places:
        return f"model.{places[module]}.{kind}"
    _, block, rdb, conv = module.split(".")
    return f"model.1.sub.{block}.{rdb.upper()}.{conv}.0.{kind}"


def bsrgan_name(name):
    for ours, theirs in (("conv_body", "trunk_conv"), ("conv_hr", "HRconv"), ("conv_up", "upconv"), (".rdb", ".RDB")):
        name = name.replace(ours, theirs)
    return name.replace("body.", "RRDB_trunk.")
