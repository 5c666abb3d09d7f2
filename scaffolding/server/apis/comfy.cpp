// ComfyUI's API, in part: what Krita's AI Diffusion calls, and /history and /view. A prompt is a job whose key is its
// prompt_id, so that it is found again after a restart; what its outputs do to pictures is known until then.
#include <algorithm>
#include <deque>
#include <mutex>

#include "scaffolding/backend/free_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/models/single_file/description.h"
#include "scaffolding/server/apis/comfy_graph.h"
#include "scaffolding/server/jobs/clip_files.h"

namespace sf::server {

namespace {

constexpr size_t kMostSent = 256 << 20;  // bytes of pictures that were sent, of everybody
constexpr size_t kMostPlans = 256;       // prompts whose outputs are known
constexpr const char* kKey = "comfy ";   // before a prompt's id, in its job's key

struct Plan {
  std::string prompt, client;  // its id; the client_id that hears of it, "" any
  std::vector<ComfyOutput> outputs;
  std::string sampler;
  json graph;
};

// What is known of prompts beside their jobs. Locked: any thread may call.
class ComfyDesk {
 public:
  void put_picture(const std::string& id, std::string bytes) {
    std::lock_guard lock(mutex_);
    std::erase_if(sent_, [&](auto& s) { return s.first == id; });
    sent_.emplace_back(id, std::make_shared<const std::string>(std::move(bytes)));
    size_t sum = 0;
    for (auto& s : sent_) sum += s.second->size();
    for (; sum > kMostSent; sent_.pop_front()) sum -= sent_.front().second->size();
  }
  std::shared_ptr<const std::string> picture(const std::string& id) const {
    std::lock_guard lock(mutex_);
    for (auto& s : sent_)
      if (s.first == id) return s.second;
    return nullptr;
  }
  void put_plan(Plan plan) {
    std::lock_guard lock(mutex_);
    plans_.push_back(std::make_shared<const Plan>(std::move(plan)));
    if (plans_.size() > kMostPlans) plans_.pop_front();
  }
  std::shared_ptr<const Plan> plan(const std::string& prompt) const {
    std::lock_guard lock(mutex_);
    for (auto& p : plans_)
      if (p->prompt == prompt) return p;
    return nullptr;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<std::pair<std::string, std::shared_ptr<const std::string>>> sent_;
  std::deque<std::shared_ptr<const Plan>> plans_;
};

std::string prompt_of(const std::string& key) { return key.starts_with(kKey) ? key.substr(6) : ""; }

// A picture at an output: "01k8...-0~11".
std::string output_id(const std::string& picture, const std::string& node) { return picture + "~" + node; }

json outputs_json(const Plan* plan, const std::vector<std::string>& pictures) {
  std::vector<ComfyOutput> outputs{{"output", "SaveImage", {}}};
  if (plan) outputs = plan->outputs;
  json out = json::object();
  for (auto& o : outputs) {
    json images = json::array();
    for (auto& p : pictures) {
      const std::string id = output_id(p, o.node);
      if (o.kind == "ETN_SaveImageCache") images.push_back({{"source", "http"}, {"id", id}});
      else
        images.push_back(
            {{"filename", id + ".png"}, {"subfolder", ""}, {"type", o.kind == "SaveImage" ? "output" : "temp"}});
    }
    out[o.node] = {{"images", images}};
  }
  return out;
}

json prompt_error(const ComfyError& e) {
  json nodes = json::object();
  const json one{{"type", "invalid"}, {"message", e.what()}, {"details", ""}, {"extra_info", json::object()}};
  if (!e.node.empty())
    nodes[e.node] = {{"errors", json::array({one})}, {"dependent_outputs", json::array()}, {"class_type", e.kind}};
  return {
      {"error", {{"type", "invalid_prompt"}, {"message", e.what()}, {"details", ""}, {"extra_info", json::object()}}},
      {"node_errors", nodes}};
}

void take_prompt(Context& c, ComfyDesk& desk, Call& call, const Answer& a) {
  c.guard.count_job(call.caller);
  const std::string prompt = call.body.value("prompt_id", History::new_id());
  try {
    const std::string owner = call.caller.name + "/";
    ComfyJob made = comfy_job(c, call.body["prompt"], [&](auto& id) { return desk.picture(owner + id); });
    made.job.key = kKey + prompt;
    if (call.body.value("front", false)) made.job.priority = Priority::High;
    desk.put_plan(
        {owner + prompt, call.body.value("client_id", ""), std::move(made.outputs), made.sampler, call.body["prompt"]});
    submit(c, call.caller, std::move(made.job));
  } catch (const ComfyError& e) {
    return a->respond(json_response(prompt_error(e), 400));
  } catch (const ValueError& e) {
    return a->respond(json_response(prompt_error(ComfyError(e.what())), 400));
  }
  a->respond(json_response({{"prompt_id", prompt}, {"number", c.jobs.waiting()}, {"node_errors", json::object()}}));
}

json queue_json(Context& c, ComfyDesk& desk, const Caller& caller) {
  json running = json::array(), pending = json::array();
  for (auto& v : c.jobs.active(caller.name)) {
    const std::string prompt = prompt_of(v.record.key);
    if (prompt.empty()) continue;
    const auto plan = desk.plan(caller.name + "/" + prompt);
    (v.record.state == JobState::Running ? running : pending)
        .push_back(
            {v.queue_place.value_or(0), prompt, plan ? plan->graph : json::object(), json::object(), json::array()});
  }
  return {{"queue_running", running}, {"queue_pending", pending}};
}

// Cancels the caller's prompts that pass.
template <class F> void cancel_prompts(Context& c, const Caller& caller, F passes) {
  for (auto& v : c.jobs.active(caller.name))
    if (const std::string prompt = prompt_of(v.record.key); !prompt.empty() && passes(v, prompt))
      c.jobs.cancel(v.record.id);
}

std::vector<std::string> ids_of(const JobRecord& job) {
  std::vector<std::string> out;
  for (auto& p : job.pictures) out.push_back(p.id);
  return out;
}

json history_json(ComfyDesk& desk, const JobRecord& job) {
  const std::string prompt = prompt_of(job.key);
  const auto plan = desk.plan(job.client + "/" + prompt);
  const bool done = job.state == JobState::Done;
  return {{"prompt", {0, prompt, plan ? plan->graph : json::object(), json::object(), json::array()}},
          {"outputs", outputs_json(plan.get(), ids_of(job))},
          {"status", {{"status_str", done ? "success" : "error"}, {"completed", done}, {"messages", json::array()}}}};
}

Response output_picture(Context& c, ComfyDesk& desk, const Caller& caller, std::string id) {
  const size_t mark = id.find('~');
  const auto found = c.jobs.history().find_picture(id.substr(0, mark));
  const auto job = found ? c.jobs.find(found->job) : std::nullopt;
  if (mark == id.npos || !job || (found->client != caller.name && !caller.admin))
    throw ApiError(404, "there is no picture '" + printable(id.substr(0, 60)) + "'", "not_found", "id");
  std::string bytes = picture_bytes(c, found->picture);
  const auto plan = desk.plan(job->record.client + "/" + prompt_of(job->record.key));
  if (plan)
    for (auto& o : plan->outputs)
      if (o.node == id.substr(mark + 1) && o.behind) {
        const Tensor picture = io::decode_image(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
                                                id, {.mode = io::ImageMode::RGB});
        bytes = io::encode_image(o.behind(picture), io::ImageFormat::PNG, {.compression = 1});
      }
  return {.body = std::move(bytes), .type = "image/png", .headers = {{"Cache-Control", "private, max-age=3600"}}};
}

// What happens to the caller's prompts, in ComfyUI's words.
void listen(Context& c, ComfyDesk& desk, const Call& call, const Answer& answer) {
  if (!call.request.websocket) throw ApiError(426, "this is for WebSockets", "upgrade", "", {{"Upgrade", "websocket"}});
  const std::string client = call.query.value("clientId", History::new_id());
  answer->begin_events();
  auto tell = [answer](const char* type, json data) {
    answer->send(io::tolerant_json_text(json{{"type", type}, {"data", std::move(data)}}));
  };
  auto pictures = std::make_shared<std::map<std::string, std::vector<std::string>>>();  // of jobs that run
  auto status = [tell, client](size_t remaining) {
    tell("status", {{"status", {{"exec_info", {{"queue_remaining", remaining}}}}}, {"sid", client}});
  };
  c.jobs.follow(
      call.caller.name, 0, [&](bool, uint64_t) { status(0); },
      [&desk, answer, tell, client, pictures](const FeedEvent& e) {
        if (answer->has_left()) return false;
        const std::string prompt = prompt_of(e.key);
        const auto plan = desk.plan(e.client + "/" + prompt);
        if (prompt.empty() || (plan && !plan->client.empty() && plan->client != client)) return true;
        const json node = plan ? json(plan->sampler) : json("output");
        auto of = [&](json more) { return more["prompt_id"] = prompt, more; };
        const std::string& name = e.event.name;
        if (name == "started") {
          tell("execution_start", of(json::object()));
          tell("execution_cached", of({{"nodes", json::array()}}));
          tell("executing", of({{"node", node}}));
        } else if (name == "step") {
          tell("progress", of({{"node", node}, {"value", e.event.data["step"]}, {"max", e.event.data["steps"]}}));
        } else if (name == "picture") {
          (*pictures)[e.job].push_back(e.event.data["id"]);
        } else if (name == "done") {
          const json outputs = outputs_json(plan.get(), (*pictures)[e.job]);
          for (auto& [id, output] : outputs.items()) tell("executed", of({{"node", id}, {"output", output}}));
          tell("executing", of({{"node", nullptr}}));
          tell("execution_success", of(json::object()));
        } else if (name == "failed") {
          tell("execution_error", of({{"node_id", node},
                                      {"exception_message", e.event.data.value("error", "")},
                                      {"traceback", json::array()}}));
        } else if (name == "cancelled") {
          tell("execution_interrupted", of({{"node_id", node}}));
        }
        if (name == "done" || name == "failed" || name == "cancelled") pictures->erase(e.job);
        return true;
      });
}

json system_json(Context& c) {
  const FreeHostMemory m = free_host_memory();
  const Device device = c.jobs.shelf().device();
  const uint64_t total = device.is_cuda() ? 0 : m.total, free = device.is_cuda() ? 0 : m.free;
  return {{"system",
           {{"os", "posix"},
            {"ram_total", m.total},
            {"ram_free", m.free},
            {"comfyui_version", "0.3.45"},
            {"python_version", ""},
            {"pytorch_version", ""},
            {"embedded_python", false},
            {"argv", json::array()}}},
          {"devices", json::array({{{"name", device.str()},
                                    {"type", device.is_cuda() ? "cuda" : "cpu"},
                                    {"index", 0},
                                    {"vram_total", total},
                                    {"vram_free", free},
                                    {"torch_vram_total", total},
                                    {"torch_vram_free", free}}})}};
}

// Which family a model is of, as the plug-in calls it; "" of others.
std::string base_of(const ShelfModel& m) {
  std::string title = m.class_name;
  if (title.empty()) {
    const size_t slash = m.path.rfind('/');
    title = models::describe_model({.path = m.path, .name = m.path.substr(slash + 1)}).title;
  }
  if (title.find("StableDiffusionXL") != title.npos || title.find("Stable Diffusion XL") != title.npos) return "sdxl";
  return title.starts_with("StableDiffusion") || title.starts_with("Stable Diffusion") ? "sd15" : "";
}

json model_info(Context& c, const std::string& folder, int64_t offset, int64_t limit) {
  json out = json::object();
  if (folder != "checkpoints") return out;
  std::vector<ShelfModel> all;
  for (auto& m : c.jobs.shelf().models())
    if (!m.makes_clips()) all.push_back(m);
  for (int64_t i = offset; i < std::min<int64_t>(offset + limit, int64_t(all.size())); ++i) {
    const ShelfModel& m = all[size_t(i)];
    const std::string base = base_of(m);
    out[m.title] = {
        {"base_model", base.empty() ? "unknown" : base}, {"type", "eps"}, {"is_inpaint", false}, {"is_refiner", false}};
  }
  out["_meta"] = {{"total", all.size()}};
  return out;
}

}  // namespace

void add_comfy_routes(Router& router, Context& c) {
  using K = FieldKind;
  auto desk = std::make_shared<ComfyDesk>();
  auto get = [&](const char* path, const char* what, std::function<json(Call&)> made) -> Route& {
    return router.add("GET", path, what,
                      [made](Call& call, const Answer& a) { a->respond(json_response(made(call))); });
  };
  get("/system_stats", "Memory and device", [&c](Call&) { return system_json(c); });
  get("/object_info", "The kinds of nodes that a graph may have", [&c](Call&) { return comfy_object_info(c); });
  get("/object_info/{kind}", "One kind of node", [&c](Call& call) {
    const json all = comfy_object_info(c);
    const auto at = all.find(call.path.at("kind"));
    return at == all.end() ? json::object() : json{{at.key(), *at}};
  });
  get("/prompt", "How many jobs wait", [&c](Call&) {
    return json{{"exec_info", {{"queue_remaining", c.jobs.waiting()}}}};
  });
  router
      .add("POST", "/prompt", "A job from a graph of nodes; others than those of /object_info are refused by name",
           [&c, desk](Call& call, const Answer& a) { take_prompt(c, *desk, call, a); })
      .takes({.all = {field("prompt", K::Object, "nodes by their ids").need(), field("client_id", K::Text).at_most(200),
                      field("prompt_id", K::Text, "as which it is known; drawn where it is absent").at_most(200),
                      field("front", K::Flag), field("number", K::Number), field("extra_data", K::Object)},
              .others = true})
      .makes_jobs();
  get("/queue", "The caller's prompts that run and wait",
      [&c, desk](Call& call) { return queue_json(c, *desk, call.caller); });
  router
      .add("POST", "/queue", "Takes prompts out of the queue",
           [&c](Call& call, const Answer& a) {
             const auto ids = call.body.value("delete", std::vector<std::string>());
             const bool clear = call.body.value("clear", false);
             cancel_prompts(c, call.caller, [&](const JobView& v, const std::string& prompt) {
               return (clear && v.record.state == JobState::Waiting) ||
                      std::find(ids.begin(), ids.end(), prompt) != ids.end();
             });
             a->respond(json_response(json::object()));
           })
      .takes({.all = {field("delete", K::Texts).at_most(10'000), field("clear", K::Flag)}, .others = true});
  router
      .add("POST", "/interrupt", "Cancels the caller's prompts that run",
           [&c](Call& call, const Answer& a) {
             const std::string one = call.body.value("prompt_id", "");
             cancel_prompts(c, call.caller, [&](const JobView& v, const std::string& prompt) {
               return v.record.state == JobState::Running && (one.empty() || one == prompt);
             });
             a->respond(json_response(json::object()));
           })
      .takes({.all = {field("prompt_id", K::Text)}, .others = true});
  get("/history", "The caller's prompts that are over", [&c, desk](Call& call) {
    json out = json::object();
    for (auto& job :
         c.jobs.history().list({.client = call.caller.name, .limit = call.query.value("max_items", int64_t(100))}))
      if (const std::string prompt = prompt_of(job.key); !prompt.empty() && is_over(job.state))
        out[prompt] = history_json(*desk, job);
    return out;
  }).asks({field("max_items", K::Whole).range(1, 500)});
  get("/history/{prompt}", "One of them, once it is over", [&c, desk](Call& call) {
    const auto job = c.jobs.history().find_key(call.caller.name, kKey + call.path.at("prompt"));
    json out = json::object();
    if (job && is_over(job->state)) out[call.path.at("prompt")] = history_json(*desk, *job);
    return out;
  });
  router
      .add("GET", "/view", "A picture of an output",
           [&c, desk](Call& call, const Answer& a) {
             std::string id = call.query["filename"];
             if (id.ends_with(".png")) id.resize(id.size() - 4);
             a->respond(output_picture(c, *desk, call.caller, id));
           })
      .asks({field("filename", K::Text).at_most(300).need()});
  router.add("GET", "/ws", "What happens to prompts, as messages of a WebSocket",
             [&c, desk](Call& call, const Answer& a) { listen(c, *desk, call, a); });
  router.add("PUT", "/api/etn/image/{id}", "A picture for ETN_LoadImageCache: the body is its bytes",
             [&c, desk](Call& call, const Answer& a) {
               picture_of("image", call.request.body, c.limits.input_pixels);
               desk->put_picture(call.caller.name + "/" + call.path.at("id"), call.request.body);
               a->respond(json_response({{"status", "success"}}, 201));
             });
  router.add("GET", "/api/etn/image/{id}", "A picture of an ETN_SaveImageCache",
             [&c, desk](Call& call, const Answer& a) {
               a->respond(output_picture(c, *desk, call.caller, call.path.at("id")));
             });
  get("/api/etn/model_info/{folder}", "What models are of", [&c](Call& call) {
    return model_info(c, call.path.at("folder"), call.query.value("offset", int64_t(0)),
                      call.query.value("limit", int64_t(1000)));
  }).asks({field("offset", K::Whole).range(0, 1e9), field("limit", K::Whole).range(1, 1000)});
  get("/api/etn/languages", "Languages that are translated: none", [](Call&) { return json::array(); });
  get("/api/etn/translate/{language}/{text}", "The text as it is",
      [](Call& call) { return json(call.path.at("text")); });
  router.add("PUT", "/api/etn/upload/loras/{id}", "Refused: files are not taken", [](Call&, const Answer&) {
    throw ApiError(403, "LoRAs are not taken over the network; put the file into a folder of --lora-dir", "forbidden");
  });
  for (const char* path : {"/api/etn/workflow/subscribe", "/api/etn/workflow/unsubscribe"})
    router.add("POST", path, "Without effect: no workflows are shared",
               [](Call&, const Answer& a) { a->respond(json_response(json::object())); });
}

}  // namespace sf::server
