"""utils.load_image and make_image_grid, as diffusers' utils have them."""

import functools
import http.server
import threading

import numpy as np
import pytest
from PIL import Image

from scaffolding.utils import load_image, make_image_grid


def square(colour, size=(4, 3), mode="RGB"):
    return Image.new(mode, size, colour)


def test_load_image_of_a_path_and_of_a_picture(tmp_path):
    path = tmp_path / "alpha.png"
    square((255, 0, 0, 128), mode="RGBA").save(path)
    for source in (path, str(path), Image.open(path)):
        got = load_image(source)
        assert got.mode == "RGB" and got.size == (4, 3) and got.getpixel((0, 0)) == (255, 0, 0)
    assert load_image(path, convert_method=lambda picture: picture.convert("L")).mode == "L"
    with pytest.raises(ValueError, match="there is no file 'absent.png'"):
        load_image("absent.png")
    with pytest.raises(TypeError, match="got ndarray"):
        load_image(np.zeros((2, 2, 3)))


def test_load_image_turns_as_the_camera_says(tmp_path):
    picture = square("blue")
    exif = picture.getexif()
    exif[0x0112] = 6  # turned by a quarter
    picture.save(tmp_path / "turned.jpg", exif=exif)
    assert load_image(tmp_path / "turned.jpg").size == (3, 4)


def test_load_image_of_an_address(tmp_path):
    square("green").save(tmp_path / "a.png")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.func.log_message = lambda *args: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        got = load_image(f"http://127.0.0.1:{server.server_port}/a.png")
        server.shutdown()
    assert got.getpixel((1, 1)) == (0, 128, 0)


def test_make_image_grid():
    colours = ["red", "lime", "blue", "white", "black", "yellow"]
    grid = make_image_grid([square(c) for c in colours], rows=2, cols=3)
    assert grid.size == (12, 6)
    assert [grid.getpixel((x, y)) for y in (0, 3) for x in (0, 4, 8)] == [square(c).getpixel((0, 0)) for c in colours]
    assert make_image_grid([square("red")] * 2, 1, 2, resize=5).size == (10, 5)
    with pytest.raises(ValueError, match="needs rows \\* cols = 4 pictures, got 3"):
        make_image_grid([square("red")] * 3, 2, 2)
