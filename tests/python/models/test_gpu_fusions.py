"""What a GPU's passes do at once, against the same passes on the CPU: packed projections, shifts as biases,
residuals in products, norms of all gradients.
"""

import pytest

import scaffolding as sf
from scaffolding import cuda
from scaffolding.models import CLIPTextModel, DiTModel, UNet2DConditionModel
from scaffolding.profiler import profile

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
SMALL = dict(
    block_out_channels=[32, 64],
    down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
    up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"],
    layers_per_block=1,
    cross_attention_dim=16,
    attention_head_dim=[2, 4],
    norm_num_groups=8,
    use_linear_projection=True,
)


def unet(**more):
    sf.manual_seed(0)
    return UNet2DConditionModel(**{**SMALL, **more}).eval()


def predict(model, device="cuda", **more):
    sf.manual_seed(1)
    x, text = sf.randn(2, 4, 8, 8), sf.randn(2, 5, 16)
    with sf.no_grad():
        return model(
            x.to(device), sf.tensor(7, device=device), text.to(device), **{k: v.to(device) for k, v in more.items()}
        ).sample.cpu()


def calls(key, f):
    with profile() as prof:
        f()
    return sum(e.key == key for e in prof.events())


@pytest.mark.parametrize("labels", [False, True])
def test_packed_projections_give_the_cpus_numbers_in_fewer_products(labels):
    model = unet(num_class_embeds=3) if labels else unet()
    more = {"class_labels": sf.tensor([0, 2])} if labels else {}
    expected = predict(model, "cpu", **more)
    model = model.to("cuda").to(memory_format=sf.channels_last)
    names, before = list(model.state_dict()), {k: v.cpu() for k, v in model.state_dict().items()}
    held = dict(model.named_parameters())
    assert (predict(model, **more) - expected).abs().max() < 1e-4
    apart = calls("gemm", lambda: predict(model, **more)) + calls("linear_add", lambda: predict(model, **more))
    model.fuse_qkv_projections()
    model.fuse_qkv_projections()  # lies so already
    assert (predict(model, **more) - expected).abs().max() < 1e-4
    together = calls("gemm", lambda: predict(model, **more)) + calls("linear_add", lambda: predict(model, **more))
    attentions, blocks = 4, 8
    assert apart - together == 2 * attentions + blocks - 1
    assert list(model.state_dict()) == names
    assert all((v.cpu() == before[k]).all() for k, v in model.state_dict().items())
    assert all(p is held[k] for k, p in model.named_parameters())


def test_skips_are_read_as_they_lie():
    model = unet()
    expected = predict(model, "cpu")
    model = model.to("cuda").to(memory_format=sf.channels_last)
    assert (predict(model) - expected).abs().max() < 1e-4
    assert calls("cat", lambda: predict(model)) == 0
    seen = []
    handle = (
        model.up_blocks[0].resnets[0].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape))
    )
    assert calls("cat", lambda: predict(model)) == 1  # a hook sees both as one
    assert seen == [(2, 128, 4, 4)] and (predict(model) - expected).abs().max() < 1e-4
    handle.remove()
    bfloat16 = model.bfloat16()
    # recorded
    assert (
        calls(
            "cat",
            lambda: bfloat16(
                sf.randn(2, 4, 8, 8, device="cuda").bfloat16(), 7, sf.randn(2, 5, 16, device="cuda").bfloat16()
            ),
        )
        > 0
    )


def test_packed_weights_are_saved_moved_and_written_as_others(tmp_path):
    model = unet().to("cuda")
    expected = predict(model)
    model.fuse_qkv_projections()
    model.save_pretrained(tmp_path)
    again = UNet2DConditionModel.from_pretrained(tmp_path)
    assert all((a == b.cpu()).all() for a, b in zip(again.parameters(), model.parameters()))
    attention = next(m for name, m in model.named_modules() if name.endswith("attn1"))
    with sf.no_grad():
        attention.to_k.weight.zero_()
    assert (attention.to_q.weight != 0).any() and (attention.to_v.weight != 0).any()
    assert not (predict(model) - expected).abs().max() < 1e-6
    there = predict(model)
    assert (predict(model.cpu(), "cpu") - there).abs().max() < 1e-4


def text_encoder():
    sizes = dict(
        vocab_size=30,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=8,
    )
    return CLIPTextModel(**sizes), lambda model: model(sf.tensor([[1, 2, 3], [4, 5, 6]], device=model.device))[0]


def transformer():
    sf.manual_seed(1)
    x, text = sf.randn(2, 4, 8, 8), sf.randn(2, 5, 12)
    model = DiTModel(patch_size=2, in_channels=4, hidden_size=32, depth=2, num_heads=4, context_dim=12)
    return model, lambda model: model(
        x.to(model.device), sf.tensor(7, device=model.device), text.to(model.device)
    ).sample


@pytest.mark.parametrize(("make", "residuals"), [(text_encoder, 2), (transformer, 1)])
def test_every_network_of_such_parts_is_packed_and_adds_residuals_in_products(make, residuals):
    model, call = make()
    layers = 2
    with sf.no_grad():
        expected = call(model.eval())
        model = model.to("cuda")
        apart = calls("gemm", lambda: call(model))
        assert calls("linear_add", lambda: call(model)) == residuals * layers
        model.fuse_qkv_projections()
        assert apart - calls("gemm", lambda: call(model)) == 2 * layers
        assert (call(model).cpu() - expected).abs().max() < 1e-4


def test_hooks_see_each_projection_of_a_packed_attention():
    model = unet().to("cuda")
    model.fuse_qkv_projections()
    expected = predict(model)
    attention = next(m for name, m in model.named_modules() if name.endswith("attn1"))
    seen = []
    attention.to_k.register_forward_hook(lambda module, args, result: seen.append(tuple(result.shape)))
    assert (predict(model) - expected).abs().max() < 1e-5 and seen == [(2, 64, 32)]


def test_training_takes_gradients_of_each_projection_and_in_the_weights_layout():
    def gradients(device, packed):
        model = unet().to(device).to(memory_format=sf.channels_last).train()
        if packed:
            model.fuse_qkv_projections()
        sf.manual_seed(1)
        x, text = sf.randn(2, 4, 8, 8).to(device), sf.randn(2, 5, 16).to(device)
        model(x, sf.tensor([3, 7], device=device), text).sample.square().mean().backward()
        return model, {k: p.grad.cpu() for k, p in model.named_parameters()}

    _, expected = gradients("cpu", False)
    model, got = gradients("cuda", True)
    for name, g in got.items():
        assert (g - expected[name]).abs().max() <= 1e-4 * expected[name].abs().max() + 1e-6, name
    weight = model.down_blocks[0].resnets[0].conv1.weight
    assert weight.grad.stride() == weight.stride() != weight.contiguous().stride()


def parameters(device):
    sf.manual_seed(2)
    made = []
    for size, dtype in (
        ((3, 5), sf.float32),
        ((70000,), sf.bfloat16),
        ((33,), sf.float16),
        ((2, 3, 3, 3), sf.float32),
        ((4,), sf.float64),
        ((0,), sf.float32),
    ):
        p = sf.zeros(size, dtype=dtype, device=device, requires_grad=True)
        g = sf.randn(size).to(dtype).to(device)
        p.grad = g.contiguous(memory_format=sf.channels_last) if g.ndim == 4 else g
        made.append(p)
    odd = sf.zeros(40, device=device, requires_grad=True)  # memory that no vector begins at
    odd.grad = sf.randn(44).to(device)[3:43]
    return [*made, odd]


@pytest.mark.parametrize("max_norm", [1.0, 1e6])
def test_the_norm_of_all_gradients_and_their_scaling_in_a_few_launches(max_norm):
    ours, theirs = parameters("cuda"), parameters("cpu")
    with profile() as prof:
        total = sf.nn.utils.clip_grad_norm_(ours, max_norm)
    assert {e.key for e in prof.events()} >= {"square_sum_of_all", "scale_all"} and not any(
        e.key in ("mul", "mul_") for e in prof.events()
    )
    expected = sf.nn.utils.clip_grad_norm_(theirs, max_norm)
    assert total.device.type == "cuda" and abs(total.item() - expected.item()) <= 1e-6 * expected.item()
    for a, b in zip(ours, theirs):
        if b.numel():
            tolerance = {sf.bfloat16: 1e-2, sf.float16: 2e-3}.get(b.dtype, 1e-6)
            assert (a.grad.cpu() - b.grad).abs().max() <= tolerance * b.grad.abs().max()
            assert max_norm == 1.0 or (a.grad.cpu() == b.grad).all()


def test_a_norm_that_is_not_finite_reaches_every_gradient():
    ours = parameters("cuda")
    ours[0].grad[0, 0] = sf.nan
    with pytest.raises(RuntimeError, match="non-finite"):
        sf.nn.utils.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)
    assert sf.isnan(sf.nn.utils.clip_grad_norm_(ours, 1.0)).item()
    assert sf.isnan(ours[-1].grad.cpu()).all()
