"""Golden files of networks that enlarge pictures: what spandrel's compute.

    python tests/golden/make_golden_models_upscalers.py      # a Python that has torch and spandrel

Writes models/upscalers (.json.gz, .safetensors.gz) and keys.tar.xz: see model_fixture.py. spandrel's RRDBNet has old
ESRGAN's names inside; the classes here give it Real-ESRGAN's constructor. What spandrel's loader makes of the names and
shapes of files is kept too, for test_models_upscalers.py.
"""

import torch
from model_fixture import ModelFixture, floats
from spandrel import ModelLoader
from spandrel.architectures.Compact import Compact
from spandrel.architectures.ESRGAN import ESRGAN
from upscaler_names import bsrgan_name, old_name


class RRDBNet(torch.nn.Module):
    def __init__(self, num_in_ch=3, num_out_ch=3, scale=4, num_feat=64, num_block=23, num_grow_ch=32, num_upsample=2):
        super().__init__()
        assert num_grow_ch == 32  # spandrel's has no other
        shuffle = 2**num_upsample // scale
        net = ESRGAN(
            in_nc=num_in_ch * shuffle**2,
            out_nc=num_out_ch,
            num_filters=num_feat,
            num_blocks=num_block,
            scale=2**num_upsample,
            shuffle_factor=shuffle if shuffle > 1 else None,
        )
        self.net, self.sizes = net, (num_block, num_upsample)
        new = ["conv_first", "conv_body", "conv_hr", "conv_last", *[f"conv_up{i + 1}" for i in range(num_upsample)]]
        new += [f"body.{i}.rdb{j}.conv{k}" for i in range(num_block) for j in (1, 2, 3) for k in (1, 2, 3, 4, 5)]
        self.names = {old_name(f"{n}.{kind}", *self.sizes): f"{n}.{kind}" for n in new for kind in ("weight", "bias")}
        assert set(self.names) == set(net.state_dict())
        RRDBNet.current = self.names

    def forward(self, x):
        return self.net(x)


class SRVGGNetCompact(torch.nn.Module):
    _supports_gradient_checkpointing = False

    def __init__(self, num_in_ch=3, num_out_ch=3, num_feat=64, num_conv=16, upscale=4, act_type="prelu"):
        super().__init__()
        self.net = Compact(
            num_in_ch=num_in_ch,
            num_out_ch=num_out_ch,
            num_feat=num_feat,
            num_conv=num_conv,
            upscale=upscale,
            act_type=act_type,
        )

    def forward(self, x):
        return self.net(x)


def detected(state):
    """What spandrel's loader makes of a file with these tensors."""
    found = ModelLoader().load_from_state_dict(dict(state))
    return {
        "class": {"ESRGAN": "RRDBNet", "Compact": "SRVGGNetCompact"}[found.architecture.id],
        "scale": found.scale,
        "channels": [found.input_channels, found.output_channels],
        "tags": found.tags,
    }


def main():
    fixture = ModelFixture("upscalers")
    fixture.model(
        RRDBNet,
        full_size={"realesrgan_x4plus_anime_6b": {"num_block": 6}},
        key=lambda name: RRDBNet.current[name.removeprefix("net.")],
    )
    fixture.model(
        SRVGGNetCompact,
        full_size={"realesr_animevideov3": {}},
        key=lambda name: name.removeprefix("net."),
    )
    tiny = {"num_feat": 16, "num_block": 1}
    picture = {"x": floats(1, 3, 4, 3)}
    files = {}
    for name, config, shape in (
        ("x4", tiny, (1, 3, 4, 3)),
        ("x2", tiny | {"scale": 2}, (1, 3, 5, 6)),  # of a size that blocks of pixels do not divide
        ("x1", tiny | {"scale": 1}, (1, 3, 9, 8)),
        ("old x2", tiny | {"num_upsample": 1, "scale": 2}, (1, 3, 4, 3)),
    ):
        fixture.case(name, RRDBNet, config, {"x": floats(*shape)}, gradients=name == "x4")
        model = fixture.filled(RRDBNet, config)
        state = {RRDBNet.current[k]: t for k, t in model.net.state_dict().items()}
        old = {old_name(k, *model.sizes): t for k, t in state.items()}
        assert set(old) == set(model.net.state_dict())
        for layout, tensors in {
            "real": state,
            "old": old,
            "bsrgan": {bsrgan_name(k): t for k, t in state.items()},
        }.items():
            found = detected(tensors)
            files[f"{name}, {layout}"] = found | {"config": config}
            x = torch.rand(1, 3, 8, 8)
            with torch.no_grad():  # that the names are right
                assert torch.equal(ModelLoader().load_from_state_dict(dict(tensors)).model.eval()(x), model(x)), name
    small = {"num_feat": 16, "num_conv": 2, "upscale": 2}
    fixture.case("compact", SRVGGNetCompact, small, picture)
    for act_type in ("relu", "leakyrelu"):
        fixture.case(act_type, SRVGGNetCompact, small | {"upscale": 3, "act_type": act_type}, picture, gradients=False)
    model = fixture.filled(SRVGGNetCompact, small)
    files["compact"] = detected(model.net.state_dict()) | {"config": small}
    fixture.extra("files", files)
    fixture.write()


if __name__ == "__main__":
    main()
