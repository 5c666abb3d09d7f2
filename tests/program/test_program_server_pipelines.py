"""`scaffolding serve`: every registered pipeline as a job of our API, with tiny random networks, against the pipeline's
own pictures and clips for the same seed."""

import base64
import io
import json
import zipfile

import pytest
from golden_pipelines import CASES, argument_of, one_thread, pipeline_of  # noqa: F401 (a fixture)
from pipeline_cases import arguments_of
from served import serving, skip_without_server
from signatures import parameters_of

import scaffolding as sf

PIPELINES = sf._core._pipelines.entries()
FIRST = {}
for _case in CASES.values():
    FIRST.setdefault(_case["pipeline"], _case)
SEED = 7


def folder_name(name):
    return f"tiny-{name}"


@pytest.fixture(scope="module")
def has_server(program, build_dir):
    skip_without_server(program, build_dir)


@pytest.fixture(scope="module")
def server(has_server, build_dir, tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    for name, case in FIRST.items():
        pipeline_of(case, case["family"]).save_pretrained(models / folder_name(name))
    (models / "broken").mkdir()
    (models / "broken" / "model_index.json").write_text('{"_class_name": "StableCascadePipeline"}')
    with serving(build_dir, tmp_path_factory.mktemp("served") / "data", "--models", models) as running:
        yield running


def call_of(name):
    """Arguments of the pipeline's call, and the same as fields of a request."""
    case = FIRST[name]
    call = {k: v for k, v in case["call"].items() if k != "batch_size"}
    if "class_labels" in call:
        call["class_labels"] = call["class_labels"][:1]
    if "guidance_scale" in parameters_of(getattr(sf.diffusion, name).__call__):
        call.setdefault("guidance_scale", 4.0)
    if "mask_image" in call:
        call["strength"] = 1.0
    keywords = arguments_of(call, argument_of)
    fields = dict(call)
    for field, role in PIPELINES[name]["roles"].items():
        if role == "control":
            fields.pop(field)
            fields["controlnet"] = [{"image": png_of(keywords[field])}]
        elif field in keywords:
            fields[field] = png_of(keywords[field])
    if "conditions" in fields:
        (condition,) = keywords["conditions"]
        fields["image"], fields["image_crf"] = png_of(condition.frames[0]), 0
        del fields["conditions"]
    if "trajectories" in fields:
        fields["trajectory"] = fields.pop("trajectories")
    return keywords, {**fields, "model": folder_name(name), "seed": SEED}


def png_of(array):
    """In base64, of uint8 [H, W, C] or [H, W]."""
    t = sf.tensor(array)
    t = t.unsqueeze(0) if t.ndim == 2 else t.permute(2, 0, 1)
    return base64.b64encode(sf.io.encode_image(t, "png")).decode()


def frames_in(body):
    """Of a zip of PNGs, uint8 [T, H, W, 3]."""
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        names = archive.namelist()
        assert names == [f"{i:04}.png" for i in range(len(names))]
        return sf.stack([sf.io.decode_image(archive.read(n)).permute(1, 2, 0) for n in names], 0)


def test_the_table_has_every_pipeline():
    assert set(FIRST) == set(PIPELINES)


@pytest.mark.parametrize("name", sorted(PIPELINES))
def test_a_job_is_what_the_pipeline_makes(server, name):
    keywords, fields = call_of(name)
    clips = PIPELINES[name]["makes_clips"]
    if clips:
        fields["format"] = "png"
    status, job, _ = server.post("/api/v1/jobs", fields)
    assert status == 202, job
    done = server.wait(job["id"])
    assert done["state"] == "done", done
    (made,) = done["pictures"]
    status, body, headers = server.get(made["url"])
    assert headers["Content-Type"] == made["type"] == ("application/zip" if clips else "image/png")
    got = frames_in(body) if clips else sf.io.decode_image(body).permute(1, 2, 0).unsqueeze(0)
    case = FIRST[name]
    pipe = pipeline_of(case, case["family"])
    pipe.set_progress_bar_config(disable=True)
    out = pipe(generator=sf.Generator().manual_seed(SEED), output_type="sf_tensor", **keywords)
    want = sf.stack(list(out.frames[0]), 0) if clips else sf.stack([out.images[0]], 0)
    assert got.shape == want.shape and (made["frames"], made["height"], made["width"]) == tuple(want.shape[:3])
    assert (got.to(sf.int32) - want.to(sf.int32)).abs().max().item() <= 1
    _, job, _ = server.post("/api/v1/jobs", fields)
    (again,) = server.wait(job["id"])["pictures"]
    assert server.get(again["url"])[1] == body, "its prompt was encoded before"


def test_a_folder_that_cannot_be_served_is_refused_by_name(server):
    assert "StableCascadePipeline" in server.get("/api/v1/models")[1]["refused"]["broken"]
    lines = [json.loads(line) for line in server.told().splitlines()]
    assert [x for x in lines if x.get("event") == "model refused" and x["model"] == "broken"], lines[:3]
    status, error, _ = server.post("/api/v1/jobs", {"model": "broken", "prompt": "a cat"})
    assert status == 422 and "StableCascadePipeline" in json.dumps(error)
