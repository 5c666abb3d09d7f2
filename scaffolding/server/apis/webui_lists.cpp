// AUTOMATIC1111's API, /sdapi/v1: the lists that its clients ask for before they begin, and what of a picture it tells.
#include <algorithm>
#include <span>

#include "scaffolding/backend/free_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/controlnet/controlled_pipeline.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/server/apis/context.h"
#include "scaffolding/server/apis/webui.h"

namespace sf::server {

std::string webui_sampler(const std::string& name) {
  static const std::pair<const char*, const char*> kNames[] = {{"ddim", "DDIM"},
                                                               {"ddpm", "DDPM"},
                                                               {"euler", "Euler"},
                                                               {"euler-a", "Euler a"},
                                                               {"heun", "Heun"},
                                                               {"dpm++2m", "DPM++ 2M"},
                                                               {"dpm++2m-sde", "DPM++ 2M SDE"},
                                                               {"dpm++3m-sde", "DPM++ 3M SDE"},
                                                               {"dpm++2m-sde-heun", "DPM++ 2M SDE Heun"},
                                                               {"unipc", "UniPC"},
                                                               {"pndm", "PLMS"},
                                                               {"lcm", "LCM"},
                                                               {"lms", "LMS"},
                                                               {"dpm2", "DPM2"},
                                                               {"dpm2-a", "DPM2 a"},
                                                               {"deis", "DEIS"}};
  std::string base = name, end;
  if (base.ends_with("-karras")) base.resize(base.size() - 7), end = " Karras";
  for (auto& [ours, theirs] : kNames)
    if (base == ours) return theirs + end;
  return name;
}

namespace {

json sampler_list(Context& c) {
  json out = json::array();
  for (auto& name : c.jobs.samplers().names)
    out.push_back({{"name", webui_sampler(name)}, {"aliases", json::array({name})}, {"options", json::object()}});
  return out;
}

json schedule_list() {
  json out = json::array();
  const std::pair<const char*, const char*> kAll[] = {{"automatic", "Automatic"},     {"karras", "Karras"},
                                                      {"exponential", "Exponential"}, {"beta", "Beta"},
                                                      {"sgm_uniform", "SGM Uniform"}, {"normal", "Normal"}};
  for (auto& [name, label] : kAll)
    out.push_back(
        {{"name", name}, {"label", label}, {"aliases", nullptr}, {"default_rho", -1}, {"need_inner_model", false}});
  return out;
}

json model_list(Context& c) {
  json out = json::array();
  for (auto& m : c.jobs.shelf().models()) {
    if (m.makes_clips()) continue;
    const std::string hash = c.jobs.shelf().hash_of(m);
    out.push_back({{"title", m.title},
                   {"model_name", m.name},
                   {"hash", hash.empty() ? json() : json(hash.substr(0, 10))},
                   {"sha256", hash.empty() ? json() : json(hash)},
                   {"filename", m.title},  // its name alone: where it lies is the server's business
                   {"config", nullptr}});
  }
  return out;
}

json vae_list(Context& c) {
  json out = json::array();
  for (auto& name : c.jobs.shelf().vae_names()) out.push_back({{"model_name", name}, {"filename", name}});
  return out;
}

json lora_list(Context& c) {
  json out = json::array();
  for (auto& name : c.jobs.shelf().lora_names())
    out.push_back({{"name", name}, {"alias", name}, {"path", name}, {"metadata", json::object()}});
  return out;
}

json memory() {
  const FreeHostMemory m = free_host_memory();
  return {{"ram", {{"free", m.free}, {"used", m.total - std::min(m.total, m.free)}, {"total", m.total}}},
          {"cuda", json::object()}};
}

json png_info(Context& c, const std::string& text) {
  const std::string bytes = bytes_of_text("image", text);
  const auto info = io::image_info(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), "image");
  json items = json::object();
  for (auto& [key, value] : info.text) items[key] = value;
  return {{"info", items.value("parameters", "")}, {"items", items}, {"parameters", json::object()}};
}

}  // namespace

void add_webui_list_routes(Router& router, Context& c) {
  auto list = [&](const char* path, const char* what, std::function<json()> made) {
    router.add("GET", std::string("/sdapi/v1/") + path, what,
               [made](Call&, const Answer& a) { a->respond(json_response(made())); });
  };
  auto same = [](json value) { return [value] { return value; }; };
  // Of the extension for ControlNets.
  router.add("GET", "/controlnet/model_list", "ControlNets", [&c](Call&, const Answer& a) {
    a->respond(json_response({{"model_list", c.jobs.shelf().controlnet_names()}}));
  });
  router.add("GET", "/controlnet/module_list", "What is made of a ControlNet's picture first",
             [](Call&, const Answer& a) {
               const json modes = diffusion::control_modes();
               a->respond(json_response({{"module_list", modes}, {"module_detail", json::object()}}));
             });
  router.add("GET", "/controlnet/version", "The version of the extension's API that this one follows",
             [](Call&, const Answer& a) {
               a->respond(json_response({{"version", 2}}));
             });
  list("samplers", "Samplers", [&c] { return sampler_list(c); });
  list("schedulers", "How their steps are spread", [] { return schedule_list(); });
  list("sd-models", "Models", [&c] { return model_list(c); });
  list("loras", "LoRAs", [&c] { return lora_list(c); });
  list("memory", "Memory", [] { return memory(); });
  list("sd-vae", "Autoencoders besides those that models have", [&c] { return vae_list(c); });
  list("sd-modules", "Further modules: none", same(json::array()));
  list("latent-upscale-modes", "What makes latents larger", same(json::array({{{"name", "Latent"}}})));
  list("embeddings", "Embeddings: none", same({{"loaded", json::object()}, {"skipped", json::object()}}));
  list("prompt-styles", "Styles: none", same(json::array()));
  list("hypernetworks", "Hypernetworks: none", same(json::array()));
  list("face-restorers", "Face restorers: none", same(json::array()));
  list("realesrgan-models", "Real-ESRGAN models: none", same(json::array()));
  list("scripts", "Scripts: none", same({{"txt2img", json::array()}, {"img2img", json::array()}}));
  list("script-info", "Scripts: none", same(json::array()));
  list("extensions", "Extensions: none", same(json::array()));
  list("cmd-flags", "How the server was started: not told", same(json::object()));
  router
      .add("POST", "/sdapi/v1/png-info", "What a PNG says about how it was made",
           [&c](Call& call, const Answer& a) {
             a->respond(json_response(png_info(c, call.body["image"].get<std::string>())));
           })
      .takes({.all = {field("image", FieldKind::Text).at_most(size_t(-1)).need()}, .others = true});
  for (const char* path : {"/sdapi/v1/refresh-checkpoints", "/sdapi/v1/refresh-loras", "/sdapi/v1/refresh-vae"})
    router
        .add("POST", path, "Looks through the folders again",
             [&c](Call&, const Answer& a) {
               c.jobs.shelf().refresh();
               a->respond(json_response(nullptr));
             })
        .admin();
  router
      .add("POST", "/sdapi/v1/unload-checkpoint", "Models leave memory once nothing runs",
           [&c](Call&, const Answer& a) {
             c.jobs.unload_models();
             a->respond(json_response(json::object()));
           })
      .admin();
}

}  // namespace sf::server
