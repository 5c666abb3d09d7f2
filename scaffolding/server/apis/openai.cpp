// OpenAI's images API: /v1/images/generations, edits and variations, /v1/models.
#include <algorithm>
#include <span>

#include "scaffolding/core/error.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/server/apis/context.h"

namespace sf::server {

namespace {

struct Output {
  io::ImageFormat format = io::ImageFormat::PNG;
  std::string name = "png";
  int quality = 95;
  bool url = false;
};

Fields image_fields(const Context& c, bool edits) {
  using K = FieldKind;
  Fields f;
  f.all = {
      field("prompt", K::Text, "what the picture shows").at_most(32'000).need(),
      field("model", K::Text, "a name of /v1/models").at_most(300),
      field("n", K::Whole, "how many").range(1, 10).otherwise(1),
      field("size", K::Text, "WIDTHxHEIGHT or auto").at_most(20).otherwise("auto"),
      field("quality", K::Text, "low: 10 steps, medium 20, high 40")
          .one_of({"auto", "low", "medium", "standard", "high", "hd"})
          .otherwise("auto"),
      field("response_format", K::Text, "in the answer, or an address that expires")
          .one_of({"b64_json", "url"})
          .otherwise("b64_json"),
      field("output_format", K::Text, "of b64_json").one_of({"png", "jpeg", "webp"}).otherwise("png"),
      field("output_compression", K::Whole, "of jpeg and webp, from 0 to 100, the best").range(0, 100),
      field("background", K::Text, "pictures have no transparency").one_of({"auto", "opaque"}),
      field("moderation", K::Text, "without effect").at_most(100),
      field("user", K::Text, "without effect").at_most(1000),
      field("stream", K::Flag, "as server-sent events").otherwise(false),
      field("partial_images", K::Whole, "of a stream: how many before the last").range(0, 3).otherwise(0),
      field("negative_prompt", K::Text, "of this server: what it should not show").at_most(20'000),
      field("seed", K::Whole, "of this server; absent: drawn").range(0, 9.2e18),
      field("num_inference_steps", K::Whole, "of this server: steps, whatever the quality")
          .range(1, double(c.limits.steps)),
      field("guidance_scale", K::Number, "of this server").range(0, 1000),
      field("sampler", K::Text, "of this server: a name of /api/v1/samplers").at_most(100),
  };
  if (!edits) return f;
  f.all.push_back(field("strength", K::Number, "of this server: how much may change").range(0, 1));
  f.all.push_back(
      field("input_fidelity", K::Text, "low or high: less or more of the picture stays").one_of({"low", "high"}));
  f.all.push_back(field("image", K::Any, "JSON only: a data URL or base64"));
  f.all.push_back(field("images", K::Any, "JSON only: [{\"image_url\": data URL}]"));
  f.all.push_back(field("mask", K::Any, "JSON only: transparent where it is made anew; {\"image_url\": data URL}"));
  return f;
}

void set_size(JobRequest& r, const std::string& size) {
  if (size == "auto") return;
  long long w = 0, h = 0;
  int end = 0;
  if (std::sscanf(size.c_str(), "%5lldx%5lld%n", &w, &h, &end) != 2 || size_t(end) != size.size() || w < 8 || h < 8 ||
      w > 16384 || h > 16384)
    throw ApiError(400, "size: must be auto or WIDTHxHEIGHT of at least 8 pixels, got '" + size + "'", "", "size");
  r.width = w, r.height = h;
}

int64_t steps_of(const std::string& quality) {
  if (quality == "low") return 10;
  return quality == "high" || quality == "hd" ? 40 : 20;
}

NewJob job_from(Context& c, const Call& call) {
  NewJob job;
  JobRequest& r = job.request;
  const json& b = call.body;
  r.api = "openai";
  r.prompt = b.value("prompt", "");
  r.negative_prompt = b.value("negative_prompt", "");
  r.model = b.value("model", "");
  r.sampler = b.value("sampler", "");
  r.count = b.value("n", int64_t(1));
  set_size(r, b.value("size", "auto"));
  r.steps = b.value("num_inference_steps", steps_of(b.value("quality", "auto")));
  if (b.contains("guidance_scale")) r.guidance = b["guidance_scale"].get<double>();
  job.has_seed = b.contains("seed");
  r.seed = b.value("seed", int64_t(0));
  job.key = call.request.header("idempotency-key");
  if (!r.model.empty()) {
    try {
      c.jobs.shelf().find(r.model);
    } catch (const ValueError& e) {
      throw ApiError(404, e.what(), "model_not_found", "model");
    }
  }
  return job;
}

Output output_of(const json& b) {
  Output out;
  out.name = b.value("output_format", "png");
  out.format = io::image_format(out.name);
  out.quality = int(std::max<int64_t>(1, b.value("output_compression", int64_t(95))));
  out.url = b.value("response_format", "b64_json") == "url";
  if (out.url && out.name != "png")
    throw ApiError(400, "output_format: what an address leads to is a png; ask for b64_json", "", "output_format");
  return out;
}

std::string encoded(const std::string& png, const Output& output) {
  if (output.format == io::ImageFormat::PNG) return png;
  const Tensor picture = io::decode_image(std::span(reinterpret_cast<const uint8_t*>(png.data()), png.size()),
                                          "picture", {.mode = io::ImageMode::RGB});
  io::ImageWriteOptions writing;
  writing.quality = output.quality;
  return io::encode_image(picture, output.format, writing);
}

json usage() {  // this server counts no tokens; clients read the numbers all the same
  return {{"total_tokens", 0},
          {"input_tokens", 0},
          {"output_tokens", 0},
          {"input_tokens_details", {{"text_tokens", 0}, {"image_tokens", 0}}}};
}

std::string size_text(const JobRecord& job) {
  if (job.pictures.empty()) return "auto";
  return std::to_string(job.pictures[0].width) + "x" + std::to_string(job.pictures[0].height);
}

void stream(Context& c, const std::string& id, const Call& call, const Answer& answer, const std::string& kind) {
  const Output output = output_of(call.body);
  const int64_t partial = call.body.value("partial_images", int64_t(0));
  auto event = [](const std::string& type, json data) {
    data["type"] = type;
    return "event: " + type + "\ndata: " + io::tolerant_json_text(data) + "\n\n";
  };
  answer->begin_events();
  answer->on_leave([&c, id] { c.jobs.cancel_left(id); });
  auto sent = std::make_shared<int64_t>(0);
  c.jobs.subscribe(
      id, 0,
      [=](const JobEvent& e) {
        if (answer->has_left()) return false;
        if (e.name == "done" || e.name == "failed" || e.name == "cancelled") return false;
        if (e.name != "step" || !e.preview || e.data["picture"] != 0) return true;
        const auto step = e.data["step"].get<int64_t>(), steps = e.data["steps"].get<int64_t>();
        if (*sent >= partial || step * (partial + 1) < (*sent + 1) * steps || step == steps) return true;
        answer->send(event(kind + ".partial_image", {{"b64_json", io::to_base64(e.preview->png())},
                                                     {"partial_image_index", (*sent)++},
                                                     {"created_at", int64_t(seconds_now())},
                                                     {"output_format", "png"}}));
        return true;
      },
      partial > 0);
  c.jobs.when_over(id, [=, &c](const JobRecord& job) {
    try {
      if (job.state != JobState::Done) throw error_of(job);
      for (auto& p : job.pictures)
        answer->send(event(kind + ".completed", {{"b64_json", io::to_base64(encoded(picture_bytes(c, p), output))},
                                                 {"created_at", int64_t(seconds_now())},
                                                 {"size", size_text(job)},
                                                 {"quality", "auto"},
                                                 {"background", "opaque"},
                                                 {"output_format", output.name},
                                                 {"usage", usage()}}));
    } catch (const std::exception& e) {
      const Response r = error_response(ErrorShape::OpenAI, e);
      answer->send("event: error\ndata: " + r.body + "\n\n");
    }
    answer->end();
  });
}

void make(Context& c, NewJob job, Call& call, const Answer& answer, const std::string& kind) {
  const Output output = output_of(call.body);
  const bool streams = call.body.value("stream", false);
  c.guard.count_job(call.caller);
  const auto accepted = submit(c, call.caller, std::move(job));
  const std::string id = accepted.job.record.id;
  if (streams) return stream(c, id, call, answer, kind);
  auto request = std::make_shared<Request>(Request{.method = "",
                                                   .target = "",
                                                   .path = "",
                                                   .query = {},
                                                   .headers = {{"host", std::string(call.request.header("host"))}},
                                                   .body = "",
                                                   .peer = ""});
  answer_when_over(c, id, ErrorShape::OpenAI, answer, [&c, output, request](const JobRecord& job) {
    json data = json::array();
    for (auto& p : job.pictures) {
      if (output.url) data.push_back({{"url", signed_url(c, *request, p)}});
      else data.push_back({{"b64_json", io::to_base64(encoded(picture_bytes(c, p), output))}});
    }
    return json_response({{"created", int64_t(job.ended)},
                          {"data", data},
                          {"background", "opaque"},
                          {"output_format", output.name},
                          {"size", size_text(job)},
                          {"usage", usage()}});
  });
}

std::string picture_text(const char* name, const json& v) {
  if (v.is_string()) return v.get<std::string>();
  if (v.is_object() && v.contains("image_url") && v["image_url"].is_string()) return v["image_url"].get<std::string>();
  throw ApiError(400, std::string(name) + ": must be a data URL, or an object with an image_url of that kind", "",
                 name);
}

// OpenAI's masks are transparent where the picture is made anew; ours are white there.
std::string mask_of_alpha(std::string_view bytes, const char* field, int64_t most_pixels) {
  io::ImageReadOptions reading{.mode = io::ImageMode::RGBA};
  reading.max_pixels = most_pixels;
  const Tensor rgba =
      io::decode_image(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), field, reading);
  const int64_t h = rgba.size(1), w = rgba.size(2);
  const Tensor planes = io::planar_image(rgba);
  Tensor mask = empty({1, h, w}, kUInt8);
  const auto* alpha = planes.data<uint8_t>() + 3 * h * w;
  auto* out = mask.data<uint8_t>();
  for (int64_t i = 0; i < h * w; ++i) out[i] = alpha[i] < 128 ? 255 : 0;
  return io::encode_image(mask, io::ImageFormat::PNG, {.compression = 1});
}

// variation: without a prompt, by the picture alone.
void edit(Context& c, Call& call, const Answer& answer, bool variation = false) {
  NewJob job = job_from(c, call);
  const json& b = call.body;
  std::vector<std::string> images;
  std::string mask;
  for (auto& part : call.files) {
    if (part.name == "mask") mask = part.value;
    else images.emplace_back(part.value);
  }
  auto add = [&](const json& v) { images.push_back(bytes_of_text("image", picture_text("image", v))); };
  if (b.contains("image")) {
    if (b["image"].is_array()) std::for_each(b["image"].begin(), b["image"].end(), add);
    else add(b["image"]);
  }
  if (b.contains("images")) {
    if (!b["images"].is_array()) throw ApiError(400, "images: must be a list", "", "images");
    std::for_each(b["images"].begin(), b["images"].end(), add);
  }
  if (b.contains("mask")) mask = bytes_of_text("mask", picture_text("mask", b["mask"]));
  if (images.size() != 1)
    throw ApiError(400,
                   images.empty()
                       ? "image: is needed"
                       : "image: this server's models take one picture, got " + std::to_string(images.size()),
                   "", "image");
  job.image = std::move(images[0]);
  if (!mask.empty()) job.mask = mask_of_alpha(mask, "mask", c.limits.input_pixels);
  const double usual = job.mask.empty() ? (b.value("input_fidelity", "low") == "high" ? 0.4 : 0.75) : 1.0;
  job.request.strength = b.value("strength", usual);
  make(c, std::move(job), call, answer, variation ? "image_variation" : "image_edit");
}

}  // namespace

void add_openai_routes(Router& router, Context& c) {
  router
      .add("POST", "/v1/images/generations", "Pictures of a prompt",
           [&c](Call& call, const Answer& a) { make(c, job_from(c, call), call, a, "image_generation"); })
      .takes(image_fields(c, false))
      .makes_jobs();
  router
      .add("POST", "/v1/images/edits", "A picture changed by a prompt, or a part of it made anew",
           [&c](Call& call, const Answer& a) { edit(c, call, a); })
      .takes(image_fields(c, true), BodyKind::Form)
      .files({"image", "mask"})
      .makes_jobs();
  Fields variations = image_fields(c, true);
  std::erase_if(variations.all, [](const FieldSpec& f) {
    return f.name == "prompt" || f.name == "mask" || f.name == "negative_prompt";
  });
  router
      .add("POST", "/v1/images/variations", "A picture like another one",
           [&c](Call& call, const Answer& a) { edit(c, call, a, true); })
      .takes(std::move(variations), BodyKind::Form)
      .files({"image"})
      .makes_jobs();
  const auto shown = [](const ShelfModel& m) -> json {
    return {{"id", m.name}, {"object", "model"}, {"created", 0}, {"owned_by", "scaffolding"}};
  };
  const auto list = [&c, shown](Call&, const Answer& a) {
    json data = json::array();
    for (auto& m : c.jobs.shelf().models())
      if (!m.makes_clips()) data.push_back(shown(m));
    a->respond(json_response({{"object", "list"}, {"data", data}}));
  };
  router.add("GET", "/v1/models", "The models", list).at_once();
  router.add("GET", "/v1/models/{id}", "A model", [&c, shown](Call& call, const Answer& a) {
    try {
      a->respond(json_response(shown(c.jobs.shelf().find(call.path.at("id")))));
    } catch (const ValueError& e) {
      throw ApiError(404, e.what(), "model_not_found", "model");
    }
  });
}

}  // namespace sf::server
