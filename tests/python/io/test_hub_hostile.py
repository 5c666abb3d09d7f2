"""scaffolding.hub against a server that means ill: endless answers, names that would steer a terminal, redirects to
where nobody is.
"""

import socket
import time

import pytest
from hub_server import COMMIT, on_a_fresh_port
from test_hub import REPO, WEIGHTS, cache, libcurl, server  # noqa: F401

from scaffolding import hub


def test_a_body_without_length_ends(server, cache):  # noqa: F811
    server.endless["config.json"] = 1 << 30
    with pytest.raises(RuntimeError, match="sends more than 67108864 bytes of a file whose size it does not say"):
        hub.hf_hub_download(REPO, "config.json")
    assert [p for p in (cache / "blobs").iterdir() if p.name.endswith(".incomplete")] == []


def test_a_short_body_without_length_is_a_file(server, cache):  # noqa: F811
    server.repos[REPO]["zeros"] = bytes(1)
    server.endless["zeros"] = 1 << 20
    # its ETag is that of one byte, and says nothing of a file of unknown size
    path = hub.hf_hub_download(REPO, "zeros")
    assert open(path, "rb").read() == bytes(1 << 20)


@pytest.mark.parametrize("etag", ["\x1b[2Jgone", "a\rb", "\x07", "\xc2\x9b31m"])
def test_what_a_server_says_stays_on_its_line(server, etag):  # noqa: F811
    server.headers = {"ETag": f'"{etag}"', "X-Linked-Etag": f'"{etag}"'}
    with pytest.raises(RuntimeError, match="has no ETag that could name a file") as refused:
        hub.hf_hub_download(REPO, "config.json")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", ["a\r\nscaffolding: all is well", "\x1b]0;title\x07/x", "../\n"])
def test_names_of_a_listing_stay_on_their_line(server, name):  # noqa: F811
    server.extra_files = [name]
    with pytest.raises(ValueError, match="hub: the file name") as refused:
        hub.snapshot_download(REPO)
    assert str(refused.value).isprintable()


def test_redirects_to_where_nobody_is_fail_at_once(server, monkeypatch):  # noqa: F811
    make = hub._options

    def slow(*args, **more):
        made = make(*args, **more)
        made.retry_wait = 1
        return made

    monkeypatch.setattr(hub, "_options", slow)  # as users have it: five more tries would take half a minute
    with on_a_fresh_port(lambda: socket.create_server(("127.0.0.1", 0))) as held:
        nobody = f"http://127.0.0.1:{held.getsockname()[1]}"
    for where, message in (
        (nobody, f"{nobody}, where {server.url} keeps the file, cannot be reached"),
        ("ftp://127.0.0.1", "redirects to 'ftp://127.0.0.1/.*', which is no http or https address"),
        ("http://127.0.0.1:99999", "127.0.0.1:99999"),
    ):
        server.store_at, begun = where, time.monotonic()
        with pytest.raises(RuntimeError, match=message):
            hub.hf_hub_download(REPO, "unet/model.safetensors", force_download=True)
        assert time.monotonic() - begun < 3
    server.store_at = None
    path = hub.hf_hub_download(REPO, "unet/model.safetensors")
    assert open(path, "rb").read() == WEIGHTS and COMMIT in path


def test_a_head_without_end_is_refused(server):  # noqa: F811
    server.headers = {f"X-Header-{i}": "x" * 60_000 for i in range(40)}
    with pytest.raises(RuntimeError):
        hub.hf_hub_download(REPO, "config.json")
