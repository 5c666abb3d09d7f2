#include "scaffolding/server/apis/context.h"

#include <cstdlib>
#include <random>

#include "scaffolding/core/error.h"
#include "scaffolding/io/base64.h"
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
