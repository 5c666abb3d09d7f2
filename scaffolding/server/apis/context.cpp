#include "scaffolding/server/apis/context.h"

#include <algorithm>
#include <cstdlib>
#include <random>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/controlnet/controlled_pipeline.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/json.h"
#include "scaffolding/server/http/url.h"
#include "scaffolding/server/jobs/clip_files.h"

namespace sf::server {

using diffusion::Task;

int64_t drawn_seed() { return int64_t(std::random_device{}()); }

std::string bytes_of_text(const std::string& field, std::string_view text) {
  if (text.starts_with("data:")) {
    const size_t comma = text.find(',');
    SF_CHECK(comma != text.npos && text.substr(0, comma).ends_with(";base64"), field, ": a data URL must be base64");
    text.remove_prefix(comma + 1);
  }
  SF_CHECK(!text.starts_with("http://") && !text.starts_with("https://"), field,
           ": addresses are not fetched; send the picture itself as base64");
  auto bytes = io::from_base64(text);
  SF_CHECK(bytes && !bytes->empty(), field, ": must be base64 of a picture");
  return std::move(*bytes);
}

void take_controlnets(const json& list, const ControlNames& names, NewJob& job) {
  constexpr size_t kMost = 8;
  SF_CHECK(list.is_array() && list.size() <= kMost, "controlnet: must be a list of at most ", kMost,
           " objects, one for each ControlNet");
  auto text = [](const json& net, const std::vector<const char*>& keys) {
    for (auto* key : keys)
      if (auto at = net.find(key); at != net.end() && at->is_string()) return at->get<std::string>();
    return std::string();
  };
  auto given_in = [](const json& net, const char* key) { return net.contains(key) && !net[key].is_null(); };
  std::string scales, starts, ends;
  auto number = [&](const json& net, const char* key, double usual, double most, std::string& all) {
    const auto at = net.find(key);
    const bool given = given_in(net, key);
    SF_CHECK(!given || at->is_number(), "controlnet: ", key, " must be a number");
    const double v = given ? at->get<double>() : usual;
    SF_CHECK(v >= 0 && v <= most, "controlnet: ", key, " must be from 0 to ", most, ", got ", v);
    all += (all.empty() ? "" : ",") + io::json_text(json(v));
  };
  for (auto& net : list) {
    SF_CHECK(net.is_object(), "controlnet: each must be an object with a model and an image");
    ControlRequest r{.model = text(net, {"model"}), .image = {}, .mode = text(net, names.mode)};
    if (r.model == "None") r.model.clear();
    SF_CHECK(!r.model.empty() || !names.needs_model, "controlnet: needs a model");
    SF_CHECK(job.request.controls.empty() || job.request.controls[0].model.empty() == r.model.empty(),
             "controlnet: needs a model for each, or for none where the model has them inside");
    if (r.mode.empty() || r.mode == "None") r.mode = "none";
    const auto& modes = diffusion::control_modes();
    SF_CHECK(std::find(modes.begin(), modes.end(), r.mode) != modes.end(), "controlnet: ", names.mode[0],
             " must be none or canny, got '", r.mode.substr(0, 60), "'");
    job.control_images.push_back(bytes_of_text("controlnet", text(net, names.image)));
    number(net, names.scale, 1, 10, scales);
    number(net, names.start, 0, 1, starts);
    number(net, names.end, 1, 1, ends);
    job.request.controls.push_back(std::move(r));
  }
  // what nobody says is the pipeline's own
  auto set = [&](const char* key, const char* option, const std::string& all) {
    if (std::any_of(list.begin(), list.end(), [&](auto& net) { return given_in(net, key); }))
      job.request.options[option] = all;
  };
  set(names.scale, "controlnet_conditioning_scale", scales);
  set(names.start, "control_guidance_start", starts), set(names.end, "control_guidance_end", ends);
}

Jobs::Accepted submit(Context& c, const Caller& caller, NewJob job) {
  JobRequest& r = job.request;
  const ShelfModel model = c.jobs.shelf().find(r.model.empty() ? c.jobs.shelf().default_model() : r.model);
  r.model = model.name;
  const bool clips = model.makes_clips();
  if (clips) {
    SF_CHECK(r.api == "jobs", "model: '", r.model, "' makes clips, which /api/v1/jobs gives alone");
    SF_CHECK(job.mask.empty(), "mask_image: '", r.model, "' makes clips, of which no part is made anew");
  }
  if (!r.format.empty()) check_clip_format(r.format, r.fps.value_or(kUsualFps));
  if (auto frames = r.options.find("num_frames"); frames != r.options.end())
    SF_CHECK(std::strtod(frames->second.c_str(), nullptr) <= double(c.limits.frames), "num_frames: at most ",
             c.limits.frames, " frames, got ", frames->second.substr(0, 40));
  if (!r.vae.empty()) r.vae = c.jobs.shelf().vae_name(r.vae);
  for (auto& net : r.controls)
    if (!net.model.empty()) net.model = c.jobs.shelf().controlnet_name(net.model);
  SF_CHECK(r.controls.empty() || !clips, "controlnet: '", r.model, "' makes clips");
  if (!r.sampler.empty()) r.sampler = c.jobs.samplers().named(r.sampler);
  for (auto& tag : diffusion::take_lora_tags(r.prompt).tags) c.jobs.shelf().lora_path(tag.name);
  for (auto& tag : r.loras) c.jobs.shelf().lora_path(tag.name);
  if (!job.has_seed) r.seed = drawn_seed();
  SF_CHECK(r.seed >= 0 && r.seed <= INT64_MAX - r.count, "seed: must be at least 0, got ", r.seed);
  if (r.width && r.height)
    SF_CHECK(*r.width <= c.limits.pixels / *r.height, "width, height: at most ", c.limits.pixels, " pixels, got ",
             *r.width, "x", *r.height);
  if (r.hires) {
    const double larger = *r.hires * *r.hires, pixels = double(r.width.value_or(512)) * double(r.height.value_or(512));
    SF_CHECK(job.image.empty(), "hires: is of pictures that begin from nothing");
    SF_CHECK(pixels * larger <= double(c.limits.pixels), "hires: at most ", c.limits.pixels, " pixels, got ",
             int64_t(pixels * larger));
  }
  if (!job.key.empty()) SF_CHECK(job.key.size() <= 255, "Idempotency-Key: at most 255 bytes");

  JobRecord record{.id = History::new_id(), .client = caller.name, .key = job.key};
  record.priority = job.priority;
  record.created = seconds_now();
  r.task = job.mask.empty() ? job.image.empty() ? Task::TextToImage : Task::ImageToImage : Task::Inpainting;
  if (clips) r.task = job.image.empty() ? Task::TextToVideo : Task::ImageToVideo;
  if (!job.image.empty()) {
    const Tensor image = picture_of("image", job.image, c.limits.input_pixels);
    SF_CHECK(r.width || image.size(1) * image.size(2) <= c.limits.pixels, "image: at most ", c.limits.pixels,
             " pixels, got ", image.size(2), "x", image.size(1), "; say a smaller width and height");
    if (!job.mask.empty()) {
      const Tensor mask = picture_of("mask", job.mask, c.limits.input_pixels, true);
      SF_CHECK(image.size(1) == mask.size(1) && image.size(2) == mask.size(2), "mask: must have the picture's size ",
               image.size(2), "x", image.size(1), ", got ", mask.size(2), "x", mask.size(1));
      r.mask = c.jobs.history().add_input(record.id, "mask", job.mask);
    }
    r.image = c.jobs.history().add_input(record.id, "image", job.image);
  }
  for (size_t i = 0; i < r.controls.size(); ++i) {
    const Tensor seen = picture_of("controlnet", job.control_images.at(i), c.limits.input_pixels);
    const bool sizes = r.width || !job.image.empty();
    SF_CHECK(sizes || seen.size(1) * seen.size(2) <= c.limits.pixels, "controlnet: at most ", c.limits.pixels,
             " pixels, got ", seen.size(2), "x", seen.size(1), "; say a smaller width and height");
    const std::string what = "control" + std::to_string(i);
    r.controls[i].image = c.jobs.history().add_input(record.id, what.c_str(), job.control_images[i]);
  }
  record.request = std::move(r);
  return c.jobs.submit(std::move(record));
}

JobView job_of(Context& c, const Caller& caller, const std::string& id) {
  auto view = c.jobs.find(id);
  if (!view || (view->record.client != caller.name && !caller.admin))
    throw ApiError(404, "there is no job '" + id.substr(0, 40) + "'", "not_found", "id");
  return std::move(*view);
}

std::string picture_bytes(Context& c, const Picture& picture) {
  auto bytes = c.jobs.history().picture_bytes(picture);
  if (!bytes) throw ApiError(404, "the picture's file is gone", "not_found");
  return std::move(*bytes);
}

std::string signed_url(const Context& c, const Request& request, const Picture& picture) {
  const std::string expires = std::to_string(int64_t(seconds_now() + c.limits.url_seconds));
  const std::string base = c.public_url.empty() ? "http://" + std::string(request.header("host")) : c.public_url;
  return base + "/pictures/" + picture.file + "?expires=" + expires +
         "&signature=" + signature(c.secret, picture.id + " " + expires);
}

bool is_signed(const Context& c, const std::string& id, const std::map<std::string, std::string>& query) {
  const auto expires = query.find("expires"), given = query.find("signature");
  if (expires == query.end() || given == query.end() || expires->second.size() > 12 ||
      expires->second.find_first_not_of("0123456789") != std::string::npos || expires->second.empty())
    return false;
  if (!is_equal_in_constant_time(given->second, signature(c.secret, id + " " + expires->second))) return false;
  if (std::stod(expires->second) < seconds_now())
    throw ApiError(410, "this address was good until it expired", "expired");
  return true;
}

ApiError error_of(const JobRecord& job) {
  if (job.state == JobState::Cancelled) return ApiError(409, "the job was cancelled", "cancelled");
  if (job.state == JobState::Failed) return ApiError(422, job.error, "failed");
  return ApiError(503, "the server is stopping; the job goes on when it starts again", "stopping", "",
                  {{"Retry-After", "10"}});
}

void answer_when_over(Context& c, const std::string& id, ErrorShape shape, const Answer& answer,
                      std::function<Response(const JobRecord&)> then) {
  answer->on_leave([&c, id] {
    c.log.write("client left", {{"job", id}});
    c.jobs.cancel_left(id);
  });
  c.jobs.when_over(id, [shape, answer, then = std::move(then)](const JobRecord& job) {
    try {
      if (job.state != JobState::Done) throw error_of(job);
      answer->respond(then(job));
    } catch (const std::exception& e) {
      answer->respond(error_response(shape, e));
    }
  });
}

}  // namespace sf::server
