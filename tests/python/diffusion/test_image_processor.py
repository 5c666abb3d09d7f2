"""VaeImageProcessor: pictures to the tensors that an autoencoder takes, and back."""

import numpy as np
import pytest
from pipeline_inputs import picture
from test_pipelines import one_thread  # noqa: F401

import scaffolding as sf
from scaffolding.diffusion import VaeImageProcessor


def test_preprocess_takes_pictures_and_values():
    p = VaeImageProcessor(vae_scale_factor=2)
    array = picture(20, 30)
    a = p.preprocess(array)
    assert a.shape == (1, 3, 20, 30) and a.dtype is sf.float32
    np.testing.assert_allclose(a.numpy()[0].transpose(1, 2, 0), array / 127.5 - 1, atol=1e-6)
    tensor = sf.tensor(array).permute(2, 0, 1)
    for same in ([array], tensor, tensor.unsqueeze(0), [tensor]):
        np.testing.assert_array_equal(p.preprocess(same).numpy(), a.numpy())
    values = array.astype(np.float32) / 255
    np.testing.assert_allclose(p.preprocess(values[None]).numpy(), a.numpy(), atol=1e-6)
    np.testing.assert_allclose(p.preprocess(sf.tensor(values).permute(2, 0, 1)).numpy(), a.numpy(), atol=1e-6)
    assert p.preprocess(array, height=12, width=17).shape == (1, 3, 12, 16)
    latents = sf.zeros(1, 4, 5, 5)
    np.testing.assert_array_equal(p.preprocess(latents).numpy(), latents.numpy())
    back = p.postprocess(a, "np")
    np.testing.assert_allclose(back[0], values, atol=1e-6)
    mask = VaeImageProcessor(vae_scale_factor=2, do_normalize=False, do_binarize=True, do_convert_grayscale=True)
    for m in (
        array[:, :, 0],
        array[:, :, :1],
        values[:, :, 0],
        sf.tensor(values[:, :, 0]),
        sf.tensor(values[:, :, 0]).unsqueeze(0),
    ):
        made = mask.preprocess(m)
        assert made.shape == (1, 1, 20, 30) and set(np.unique(made.numpy())) <= {0.0, 1.0}
    with pytest.raises(ValueError, match="different sizes"):
        VaeImageProcessor(do_resize=False).preprocess([picture(8, 8), picture(8, 16)])
    with pytest.raises(ValueError, match="black all over"):
        VaeImageProcessor.get_crop_region(np.zeros((8, 8), np.uint8), 8, 8)
