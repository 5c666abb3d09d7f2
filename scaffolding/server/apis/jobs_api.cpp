// Our own API, /api/v1: jobs that are made, looked at, cancelled and listened to; models.
#include <algorithm>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/json.h"
#include "scaffolding/server/apis/context.h"
#include "scaffolding/server/jobs/clip_files.h"

namespace sf::server {

using diffusion::Task;

namespace {

Fields job_fields(const Context& c) {
  using K = FieldKind;
  Fields f;
  f.all = {
      field("prompt", K::Text, "what the pictures show; <lora:name:0.8> turns a LoRA on").at_most(20'000),
      field("negative_prompt", K::Text, "what they should not show").at_most(20'000),
      field("model", K::Text, "a name of /api/v1/models").at_most(300),
      field("vae", K::Text, "an autoencoder of /api/v1/models; absent: the model's own").at_most(300),
      field("sampler", K::Text, "a name of /api/v1/samplers; absent: the model's own").at_most(100),
      field("scheduler_options", K::Texts, "fields of the sampler's config: field=value").at_most(16),
      field("width", K::Whole, "pixels").range(8, 16384),
      field("height", K::Whole, "pixels").range(8, 16384),
      field("num_inference_steps", K::Whole, "steps of the sampler").range(1, double(c.limits.steps)).otherwise(20),
      field("guidance_scale", K::Number, "how closely to follow the prompt; absent: what the model advises")
          .range(0, 1000),
      field("seed", K::Whole, "of the first picture; each next one has the next. Absent: drawn").range(0, 9.2e18),
      field("count", K::Whole, "of pictures").range(1, double(c.limits.pictures)).otherwise(1),
      field("image", K::Text, "a picture to begin with: PNG, JPEG or WebP in base64").at_most(size_t(-1)),
      field("mask_image", K::Text, "white where it is made anew, in base64").at_most(size_t(-1)),
      field("strength", K::Number, "how much of the picture may change").range(0, 1).otherwise(0.75),
      field("mask_blur", K::Whole, "pixels by which the mask's edges are soft").range(0, 256),
      field("mask_fill", K::Text, "what is under the mask to begin with")
          .one_of({"around", "original", "noise", "nothing"})
          .otherwise("original"),
      field("padding_mask_crop", K::Whole, "only this far around the mask is drawn, at the whole size").range(0, 4096),
      field("hires", K::Number, "how much larger a second pass makes the picture").range(1, 8),
      field("hires_strength", K::Number, "how much that pass may change").range(0, 1).otherwise(0.7),
      field("hires_steps", K::Whole, "of that pass").range(1, double(c.limits.steps)),
      field("hires_upscaler", K::Text).one_of({"latent", "bicubic", "lanczos"}).otherwise("latent"),
      field("format", K::Text, "of clips; png is a zip of a PNG for each frame. Pictures are png")
          .one_of(clip_formats()),
      field("fps", K::Number, "of clips, frames a second; absent: 8").range(0.01, 1000),
      field("trajectory", K::Any,
            "where things of a clip go, in its pixels: 'x,y x,y; x,y x,y', or a list of lists of points [x, y]"),
      field("trajectory_points", K::Any, "the same on a canvas of 256 x 256"),
      field("controlnet", K::Any,
            "ControlNets beside the model: a list of {model, image, mode: none or canny, weight, guidance_start, "
            "guidance_end}"),
      field("loras", K::Object, "names and weights: {\"style\": 0.8}"),
      field("priority", K::Text, "how urgent it is").one_of({"low", "normal", "high"}).otherwise("normal"),
  };
  std::set<std::string> options;
  for (Task task : {Task::TextToImage, Task::ImageToImage, Task::Inpainting, Task::Unconditional, Task::TextToVideo,
                    Task::ImageToVideo})
    for (auto& name : option_names(task)) options.insert(name);
  for (auto& name : options)
    if (!f.find(name)) f.all.push_back(field(name, K::Any, "of the pipeline's call"));
  return f;
}

NewJob job_from(const Call& call, const Fields& fields) {
  NewJob job;
  JobRequest& r = job.request;
  const json& b = call.body;
  r.prompt = b.value("prompt", "");
  r.negative_prompt = b.value("negative_prompt", "");
  r.model = b.value("model", "");
  r.vae = b.value("vae", "");
  r.sampler = b.value("sampler", "");
  r.scheduler_options = b.value("scheduler_options", std::vector<std::string>());
  if (b.contains("width")) r.width = b["width"].get<int64_t>();
  if (b.contains("height")) r.height = b["height"].get<int64_t>();
  r.steps = b.value("num_inference_steps", int64_t(20));
  if (b.contains("guidance_scale")) r.guidance = b["guidance_scale"].get<double>();
  job.has_seed = b.contains("seed");
  r.seed = b.value("seed", int64_t(0));
  r.count = b.value("count", int64_t(1));
  r.strength = b.value("strength", 0.75);
  if (b.contains("image")) job.image = bytes_of_text("image", b["image"].get_ref<const std::string&>());
  if (b.contains("mask_image")) job.mask = bytes_of_text("mask_image", b["mask_image"].get_ref<const std::string&>());
  SF_CHECK(job.mask.empty() || !job.image.empty(), "mask_image: needs an image");
  r.mask_blur = b.value("mask_blur", int64_t(0));
  const std::string fill = b.value("mask_fill", "original");
  r.mask_fill = fill == "around"    ? MaskFill::Around
                : fill == "noise"   ? MaskFill::Noise
                : fill == "nothing" ? MaskFill::Nothing
                                    : MaskFill::Original;
  if (b.contains("padding_mask_crop")) r.mask_padding = b["padding_mask_crop"].get<int64_t>();
  if (b.contains("hires")) r.hires = b["hires"].get<double>();
  r.hires_strength = b.value("hires_strength", 0.7);
  if (b.contains("hires_steps")) r.hires_steps = b["hires_steps"].get<int64_t>();
  r.hires_upscaler = b.value("hires_upscaler", "latent");
  if (b.contains("loras"))
    for (auto& [name, weight] : b["loras"].items()) {
      SF_CHECK(weight.is_number(), "loras: the weight of '", name, "' must be a number");
      r.loras.push_back({name, weight.get<double>(), weight.get<double>()});
    }
  if (b.contains("controlnet"))
    take_controlnets(b["controlnet"], {{"image"}, {"mode"}, "weight", "guidance_start", "guidance_end"}, job);
  for (auto& [name, value] : b.items())
    if (auto* f = fields.find(name); f && f->kind == FieldKind::Any && name != "controlnet")
      r.options[name] = name.starts_with("trajectory") ? trajectories_text(name, value) : option_text(name, value);
  r.format = b.value("format", "");
  if (b.contains("fps")) r.fps = b["fps"].get<double>();
  job.priority = *priority_named(b.value("priority", "normal"));
  job.key = call.request.header("idempotency-key");
  return job;
}

json job_json(const JobView& v) {
  const JobRecord& j = v.record;
  auto time = [](double t) { return t > 0 ? json(t) : json(); };
  json request = to_json(j.request);
  if (auto nets = request.find("controlnet"); nets != request.end())
    for (auto& net : *nets) net.erase("image");
  for (const char* file : {"image", "mask"}) request[file] = !request[file].get<std::string>().empty();
  json out{{"id", j.id},
           {"state", name_of(j.state)},
           {"priority", name_of(j.priority)},
           {"created", j.created},
           {"started", time(j.started)},
           {"ended", time(j.ended)},
           {"progress", v.progress()},
           {"step", v.step},
           {"steps", v.steps},
           {"decoded", v.decoded},
           {"queue_place", v.queue_place ? json(*v.queue_place) : json()},
           {"seconds_left", v.seconds_left >= 0 ? json(v.seconds_left) : json()},
           {"error", j.error.empty() ? json() : json(j.error)},
           {"request", request},
           {"url", "/api/v1/jobs/" + j.id},
           {"events", "/api/v1/jobs/" + j.id + "/events"}};
  json pictures = json::array();
  for (auto& p : j.pictures) pictures.push_back(picture_json(p));
  out["pictures"] = pictures;
  return out;
}

// As server-sent event, or as a message of a WebSocket.
std::string event_text(const JobEvent& event, bool with_previews, bool websocket) {
  json data = event.data;
  if (with_previews && event.preview) data["preview"] = io::to_base64(event.preview->png());
  if (websocket) return io::tolerant_json_text(json{{"id", event.id}, {"event", event.name}, {"data", data}});
  return "id: " + std::to_string(event.id) + "\nevent: " + event.name + "\ndata: " + io::tolerant_json_text(data) +
         "\n\n";
}

uint64_t number_of(std::string_view text) {  // 0 of what is none
  if (text.empty() || text.size() > 15 || text.find_first_not_of("0123456789") != text.npos) return 0;
  return std::stoull(std::string(text));
}

// What a model can be asked for: its own task and those of its family. Empty of a file that was not loaded yet.
json tasks_of(const ShelfModel& model) {
  json out = json::array();
  const auto* own = diffusion::find_pipeline(model.class_name);
  if (!own) return out;
  for (auto* entry : diffusion::all_pipelines())
    if (entry == own || entry->family_name == own->family_name) out.push_back(diffusion::name_of(entry->its_task));
  return out;
}

// Of all jobs of the caller in one stream: a browser has few connections for all its windows together.
void listen_to_all(Context& c, const Call& call, const Answer& answer) {
  uint64_t after = number_of(call.request.header("last-event-id"));
  if (after == 0) after = uint64_t(call.query.value("after", int64_t(0)));
  const bool previews = call.query.value("previews", false), websocket = call.request.websocket;
  answer->begin_events();
  c.jobs.follow(
      call.caller.name, after,
      [&](bool complete, uint64_t from) {
        const JobEvent hello{from, "hello", {{"complete", complete}}, nullptr};
        answer->send((websocket ? "" : "retry: 1000\n") + event_text(hello, false, websocket));
      },
      [answer, previews, websocket](const FeedEvent& e) {
        if (answer->has_left()) return false;
        JobEvent event = e.event;
        event.id = e.id, event.data["job"] = e.job;
        answer->send(event_text(event, previews, websocket));
        return true;
      },
      previews);
}

void listen(Context& c, const Call& call, const Answer& answer) {
  const JobView view = job_of(c, call.caller, call.path.at("id"));
  uint64_t after = number_of(call.request.header("last-event-id"));
  if (after == 0) after = uint64_t(call.query.value("after", int64_t(0)));
  const bool previews = call.query.value("previews", false), websocket = call.request.websocket;
  answer->begin_events();
  c.jobs.subscribe(
      view.record.id, after,
      [answer, previews, websocket](const JobEvent& event) {
        if (answer->has_left()) return false;
        answer->send(event_text(event, previews, websocket));
        const bool last = event.name == "done" || event.name == "failed" || event.name == "cancelled";
        if (last) answer->end();
        return !last;
      },
      previews);
}

}  // namespace

void add_job_routes(Router& router, Context& c) {
  using K = FieldKind;
  const Fields fields = job_fields(c);
  router
      .add("POST", "/api/v1/jobs", "Makes a job; 202 once it is safe on the disk",
           [&c, fields](Call& call, const Answer& a) {
             c.guard.count_job(call.caller);
             const auto accepted = submit(c, call.caller, job_from(call, fields));
             a->respond(
                 json_response(job_json(accepted.job), 202, {{"Location", "/api/v1/jobs/" + accepted.job.record.id}}));
           })
      .takes(fields)
      .makes_jobs();
  router
      .add("GET", "/api/v1/jobs", "The caller's jobs, the newest first",
           [&c](Call& call, const Answer& a) {
             JobFilter filter{.client = call.caller.name};
             if (call.caller.admin && call.query.value("everybody", false)) filter.client.reset();
             json jobs = json::array();
             if (const std::string state = call.query.value("state", ""); state == "active") {
               for (auto& view : c.jobs.active(call.caller.name)) jobs.push_back(job_json(view));
               return a->respond(json_response({{"jobs", jobs}}));
             } else if (!state.empty()) {
               filter.state = job_state(state);
             }
             filter.words = call.query.value("words", "");
             filter.before = call.query.value("before", "");
             filter.limit = call.query.value("limit", int64_t(50));
             for (auto& record : c.jobs.history().list(filter)) {
               auto view = c.jobs.find(record.id);
               jobs.push_back(job_json(view ? *view : JobView{.record = record}));
             }
             a->respond(json_response({{"jobs", jobs}}));
           })
      .asks({field("state", K::Text, "active: the caller's that wait or run, all of them")
                 .one_of({"waiting", "running", "done", "failed", "cancelled", "active"}),
             field("words", K::Text).at_most(1000), field("before", K::Text).at_most(40),
             field("limit", K::Whole).range(1, 500), field("everybody", K::Flag)});
  router.add("GET", "/api/v1/jobs/{id}", "A job, with its progress and pictures", [&c](Call& call, const Answer& a) {
    a->respond(json_response(job_json(job_of(c, call.caller, call.path.at("id")))));
  });
  router.add("DELETE", "/api/v1/jobs/{id}", "Cancels a job that waits or runs; one that runs stops within a step",
             [&c](Call& call, const Answer& a) {
               const JobView view = job_of(c, call.caller, call.path.at("id"));
               c.jobs.cancel(view.record.id);
               a->respond(json_response(job_json(*c.jobs.find(view.record.id))));
             });
  router
      .add("PATCH", "/api/v1/jobs/{id}", "Another priority for a job that waits",
           [&c](Call& call, const Answer& a) {
             const JobView view = job_of(c, call.caller, call.path.at("id"));
             if (!c.jobs.set_priority(view.record.id, *priority_named(call.body["priority"].get<std::string>())))
               throw ApiError(409, "the job does not wait any more", "state");
             a->respond(json_response(job_json(*c.jobs.find(view.record.id))));
           })
      .takes({.all = {field("priority", K::Text).one_of({"low", "normal", "high"}).need()}});
  router
      .add("GET", "/api/v1/jobs/{id}/events",
           "What happens to a job, as server-sent events, or as messages of a WebSocket",
           [&c](Call& call, const Answer& a) { listen(c, call, a); })
      .asks({field("previews", K::Flag),
             field("after", K::Whole, "the number of an event: those behind it, where Last-Event-ID cannot be sent")
                 .range(0, 9e15)});
  router.add("GET", "/api/v1/jobs/{id}/preview", "What the picture looks like now: a small PNG",
             [&c](Call& call, const Answer& a) {
               const auto preview = c.jobs.preview(job_of(c, call.caller, call.path.at("id")).record.id);
               if (!preview) throw ApiError(404, "there is no preview of this job now", "not_found");
               a->respond({.body = preview->png(), .type = "image/png", .headers = {{"Cache-Control", "no-store"}}});
             });
  router
      .add("GET", "/api/v1/events", "What happens to all jobs of the caller; 'hello' says whether nothing was left out",
           [&c](Call& call, const Answer& a) { listen_to_all(c, call, a); })
      .asks({field("previews", K::Flag), field("after", K::Whole, "as of a job's events").range(0, 9e15)});
  router.add("GET", "/api/v1/models", "The models that jobs may name", [&c](Call&, const Answer& a) {
    json models = json::array();
    const auto resident = c.jobs.shelf().resident();
    auto where = [&](const std::string& name) {
      const auto at = std::find_if(resident.begin(), resident.end(), [&](auto& r) { return r.name == name; });
      return at == resident.end() ? json() : json(at->device.str());
    };
    for (auto& m : c.jobs.shelf().models())
      models.push_back({{"name", m.name},
                        {"title", m.title},
                        {"pipeline", m.class_name.empty() ? json() : json(m.class_name)},
                        {"tasks", tasks_of(m)},
                        {"makes_clips", m.class_name.empty() ? json() : json(m.makes_clips())},
                        {"bytes", m.bytes},
                        {"default", m.name == c.jobs.shelf().default_model()},
                        {"in_memory", !where(m.name).is_null()},
                        {"device", where(m.name)}});
    json refused = json::object();
    for (auto& [name, why] : c.jobs.shelf().refused()) refused[name] = why;
    a->respond(json_response({{"models", models},
                              {"refused", refused},
                              {"loras", c.jobs.shelf().lora_names()},
                              {"vaes", c.jobs.shelf().vae_names()}}));
  });
  router
      .add("POST", "/api/v1/models/refresh", "Looks through the folders again",
           [&c](Call&, const Answer& a) {
             c.jobs.shelf().refresh();
             a->respond(json_response({{"models", c.jobs.shelf().models().size()}}));
           })
      .admin();
  router.add("GET", "/api/v1/samplers", "The samplers that jobs may name", [&c](Call&, const Answer& a) {
    a->respond(json_response({{"samplers", c.jobs.samplers().names}}));
  });
}

}  // namespace sf::server
