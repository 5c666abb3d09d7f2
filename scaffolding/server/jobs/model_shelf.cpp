#include "scaffolding/server/jobs/model_shelf.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/free_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/diffusion/pipelines/controlnet/controlled_pipeline.h"
#include "scaffolding/diffusion/pipelines/lora.h"
#include "scaffolding/diffusion/pipelines/replace_vae.h"
#include "scaffolding/io/hub/local_models.h"
#include "scaffolding/io/hub/shipped_models.h"
#include "scaffolding/nn/closest.h"

namespace sf::server {

namespace fs = std::filesystem;
using diffusion::DiffusionPipeline;

namespace {

constexpr size_t kKeptLoras = 32;  // of a model, beside those that are on

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  return text;
}

uint64_t bytes_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return fs::file_size(path, error);
  uint64_t sum = 0;
  for (auto& entry : fs::recursive_directory_iterator(path, error))
    if (entry.is_regular_file(error)) sum += entry.file_size(error);
  return sum;
}

uint64_t weight_bytes(const DiffusionPipeline& pipeline) {
  uint64_t sum = 0;
  for (auto* model : pipeline.native_models())
    for (auto& p : nn::parameters(*model)) sum += p.nbytes();
  return sum;
}

std::string text_of(const std::vector<diffusion::LoraTag>& loras) {
  std::string out;
  for (auto& l : loras) out += diffusion::text_of(l);
  return out;
}

}  // namespace

bool ShelfModel::makes_clips() const {
  const auto* entry = diffusion::find_pipeline(class_name);
  return entry && diffusion::makes_clips(entry->its_task);
}

ModelShelf::ModelShelf(ShelfSettings settings)
    : settings_(std::move(settings)),
      quantize_(diffusion::quantize_all("--quantize", settings_.weights.quantize)),
      hashes_(settings_.hashes) {
  if (settings_.budget == 0) settings_.budget = free_host_memory().free / 4 * 3;
  if (settings_.gpu_budget == 0 && settings_.device.is_cuda())
    settings_.gpu_budget = free_device_memory(settings_.device) / 4 * 3;
  std::error_code error;
  for (auto& f : settings_.folders) SF_CHECK(fs::is_directory(f, error), "--models: there is no folder '", f, "'");
  for (auto& f : settings_.lora_folders)
    SF_CHECK(fs::is_directory(f, error), "--lora-dir: there is no folder '", f, "'");
  for (auto& f : settings_.controlnet_folders)
    SF_CHECK(fs::is_directory(f, error), "--controlnet-dir: there is no folder '", f, "'");
  refresh();
  if (!settings_.default_model.empty()) settings_.default_model = find(settings_.default_model).name;
  else if (!models_.empty()) {
    // What clients of other programs' APIs can have, where there is any.
    auto first = std::find_if(models_.begin(), models_.end(), [](const ShelfModel& m) { return !m.makes_clips(); });
    settings_.default_model = (first == models_.end() ? models_.begin() : first)->name;
  }
  SF_CHECK(!models_.empty(), "serve: there is no model; --models names folders with some");
}

void ModelShelf::refresh() {
  std::vector<ShelfModel> found;
  std::set<std::string> names;
  std::vector<ShelfModel> upscalers, vaes, controlnets;
  std::vector<std::pair<std::string, std::string>> refused;
  auto file = [](std::vector<ShelfModel>& all, const io::LocalModel& m) {
    std::string name = io::short_name(m);
    while (std::any_of(all.begin(), all.end(), [&](auto& other) { return lower(other.name) == lower(name); }))
      name += "'";
    all.push_back({.name = name, .path = m.path, .title = fs::path(m.path).filename().string()});
  };
  auto add = [&](std::string name, const std::string& path, bool is_file) {
    while (!names.insert(lower(name)).second) name += "'";
    ShelfModel m{.name = name, .path = path, .title = is_file ? fs::path(path).filename().string() : name};
    if (!is_file) {
      try {
        m.class_name = diffusion::plan_pipeline(path).entry->name;
      } catch (const sf::Error& e) {
        refused.emplace_back(name, e.what());
        return;
      }
    }
    m.bytes = bytes_of(path);
    found.push_back(std::move(m));
  };
  for (auto& name : io::shipped_models())
    if (auto folder = io::find_shipped_model(name)) add(name, *folder, false);
  std::vector<io::ModelPlace> places;
  for (auto& f : settings_.folders) places.push_back({.folder = f, .program = "serve"});
  for (auto& m : io::local_models(places)) {
    const bool is_part = m.form == io::LocalModel::Part;
    if (m.use == io::ModelUse::Upscaler) file(upscalers, m);
    if (m.use == io::ModelUse::Vae) file(vaes, m);
    if (is_part) continue;
    if (m.use != io::ModelUse::Any && m.use != io::ModelUse::Model) continue;
    add(io::short_name(m), m.path, m.form == io::LocalModel::File);
  }
  places.clear();
  for (auto& f : settings_.controlnet_folders) places.push_back({.folder = f, .program = "serve"});
  for (auto& m : io::local_models(places))
    if (m.form != io::LocalModel::Pipeline) file(controlnets, m);
  auto loras = settings_.lora_folders.empty() ? nullptr : std::make_unique<models::LoraFolders>(settings_.lora_folders);
  std::vector<std::string> files;
  std::error_code error;
  for (auto& m : found)
    if (fs::is_regular_file(m.path, error)) files.push_back(m.path);
  hashes_.compute(files);
  std::lock_guard lock(mutex_);
  models_ = std::move(found);
  upscalers_ = std::move(upscalers), vaes_ = std::move(vaes), refused_ = std::move(refused);
  controlnets_ = std::move(controlnets);
  loras_ = std::move(loras);
}

std::vector<ShelfModel> ModelShelf::models() const {
  std::lock_guard lock(mutex_);
  return models_;
}

std::vector<std::pair<std::string, std::string>> ModelShelf::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

std::string ModelShelf::default_model() const {
  std::lock_guard lock(mutex_);
  return settings_.default_model;
}

ShelfModel ModelShelf::find(const std::string& name) const {
  std::string wanted = lower(name), digits;
  if (const size_t at = wanted.rfind(" ["); at != wanted.npos && wanted.back() == ']')
    digits = wanted.substr(at + 2, wanted.size() - at - 3), wanted.resize(at);
  const std::string file = hashes_.file_of(digits.empty() ? wanted : digits);
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (auto& m : models_) {
    if (wanted == lower(m.name) || wanted == lower(m.title) || (!file.empty() && m.path == file)) return m;
    names.push_back(m.name);
  }
  for (auto& [other, why] : refused_) SF_CHECK(wanted != lower(other), "model: '", other, "' cannot be served: ", why);
  const std::string near = nn::closest(name, names);
  fail("model: there is no '", printable(name.substr(0, 100)), "' here",
       near.empty() ? "; the list of models has their names" : "; did you mean '" + near + "'?");
}

namespace {

std::vector<std::string> names_of(const std::vector<ShelfModel>& all) {
  std::vector<std::string> names;
  for (auto& m : all) names.push_back(m.name);
  return names;
}

const ShelfModel& named(const char* what, const std::vector<ShelfModel>& all, const std::string& name) {
  for (auto& m : all)
    if (lower(name) == lower(m.name) || lower(name) == lower(m.title)) return m;
  fail(what, ": there is no '", printable(name.substr(0, 100)), "' here", nn::closest_hint(name, names_of(all)));
}

}  // namespace

std::string ModelShelf::hash_of(const ShelfModel& model) const { return hashes_.of(model.path); }

std::vector<std::string> ModelShelf::upscaler_names() const {
  std::lock_guard lock(mutex_);
  return names_of(upscalers_);
}

std::string ModelShelf::upscaler_path(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return named("upscaler", upscalers_, name).path;
}

std::vector<std::string> ModelShelf::vae_names() const {
  std::lock_guard lock(mutex_);
  return names_of(vaes_);
}

std::string ModelShelf::vae_name(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return named("vae", vaes_, name).name;
}

std::vector<std::string> ModelShelf::controlnet_names() const {
  std::lock_guard lock(mutex_);
  return names_of(controlnets_);
}

std::string ModelShelf::controlnet_name(const std::string& name) const {
  std::lock_guard lock(mutex_);
  SF_CHECK(!controlnets_.empty(), "controlnet: the server was started without --controlnet-dir");
  // AUTOMATIC1111's clients write a hash behind it
  return named("controlnet", controlnets_, name.substr(0, name.find(" ["))).name;
}

std::vector<std::string> ModelShelf::lora_names() const {
  std::lock_guard lock(mutex_);
  return loras_ ? loras_->names() : std::vector<std::string>();
}

std::string ModelShelf::lora_path(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = loras_ ? loras_->find(name) : std::vector<std::string>();
  SF_CHECK(!found.empty(), "lora: there is no '", printable(name.substr(0, 100)), "' here",
           loras_ ? nn::closest_hint(name, loras_->names()) : "; the server was started without --lora-dir");
  SF_CHECK(found.size() == 1, "lora: ", int64_t(found.size()), " files have the name '", printable(name),
           "'; say which with its folder's name before it");
  return found[0];
}

ModelShelf::Loaded* ModelShelf::loaded(const std::string& name) {
  for (auto& l : loaded_)
    if (l.name == name) return &l;
  return nullptr;
}

bool ModelShelf::is_loaded(const std::string& name) const {
  return std::any_of(loaded_.begin(), loaded_.end(), [&](const Loaded& l) { return l.name == name; });
}

uint64_t ModelShelf::budget(Device device) const { return device.is_cuda() ? settings_.gpu_budget : settings_.budget; }

// Between runs: nobody uses its networks.
void ModelShelf::move(Loaded& l, Device device) {
  std::erase_if(l.tasks, [](auto& task) { return !task.first.second.empty(); });  // another autoencoder is read again
  l.controlled.clear(), l.controlnets.clear();
  l.prompts.forget();
  l.pipeline->to({.device = device});
  for (auto& [component, model] : diffusion::adapted_models(*l.pipeline))
    if (model->has_adapters()) model->adapters().refresh();
  set_device(l, device);
}

void ModelShelf::set_device(Loaded& l, Device device) {
  std::lock_guard lock(mutex_);
  l.device = device;
  l.bytes = weight_bytes(*l.pipeline);
}

// What leaves a GPU stays in the host's memory, where that has room for it.
bool ModelShelf::take_from(Device device, const std::set<std::string>& but) {
  auto oldest = loaded_.end();
  for (auto at = loaded_.begin(); at != loaded_.end(); ++at)
    if (at->device == device && !but.count(at->name) && (oldest == loaded_.end() || at->used < oldest->used))
      oldest = at;
  if (oldest == loaded_.end()) return false;
  const std::string name = oldest->name;
  if (device.is_cuda() && make_room(Device(), oldest->bytes, but)) {
    Loaded& l = *loaded(name);  // room may have been made before it in the list
    try {
      move(l, Device());
      accelerator(device).empty_cache(device.index);
      return true;
    } catch (const OutOfMemory&) {}
  }
  std::vector<Loaded> gone;  // its memory is given back without the lock, for which clients wait
  std::lock_guard lock(mutex_);
  const auto at = std::stable_partition(loaded_.begin(), loaded_.end(), [&](auto& l) { return l.name != name; });
  gone.assign(std::make_move_iterator(at), std::make_move_iterator(loaded_.end()));
  loaded_.erase(at, loaded_.end());
  return true;
}

bool ModelShelf::make_room(Device device, uint64_t bytes, const std::set<std::string>& in_use) {
  while (resident_bytes(device) + bytes > budget(device))
    if (!take_from(device, in_use)) return false;
  return true;
}

bool ModelShelf::unload_oldest(const std::set<std::string>& but) { return take_from(settings_.device, but); }

void ModelShelf::unload_all() {
  std::vector<Loaded> gone;
  std::lock_guard lock(mutex_);
  gone.swap(loaded_);
}

bool ModelShelf::make_room_for(const std::string& name, const std::set<std::string>& in_use) {
  return make_room(settings_.device, find(name).bytes, in_use);
}

std::vector<ModelShelf::Resident> ModelShelf::resident() const {
  std::lock_guard lock(mutex_);
  std::vector<Resident> out;
  for (auto& l : loaded_) out.push_back({l.name, l.device, l.bytes});
  return out;
}

uint64_t ModelShelf::resident_bytes() const {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (auto& l : loaded_) sum += l.bytes;
  return sum;
}

uint64_t ModelShelf::resident_bytes(Device device) const {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (auto& l : loaded_) sum += l.device == device ? l.bytes : 0;
  return sum;
}

std::shared_ptr<DiffusionPipeline> ModelShelf::read(const std::string& name) const {
  const ShelfModel model = find(name);
  std::shared_ptr<DiffusionPipeline> pipeline;
  std::error_code error;
  if (fs::is_regular_file(model.path, error)) {
    pipeline = diffusion::load_single_file_pipeline(
                   model.path, {.dtype = settings_.weights.dtype, .quantize = quantize_, .keep_blocks = true})
                   .pipeline;
  } else {
    diffusion::LoadPipelineOptions options;
    options.dtype = settings_.weights.dtype;
    options.quantize = quantize_;
    options.hub.local_files_only = true;
    pipeline = diffusion::load_pipeline(model.path, options).pipeline;
  }
  if (settings_.device != Device()) pipeline->to({.device = settings_.device});
  SF_CHECK(pipeline->the_scheduler(), "model: '", name, "' has no scheduler");
  return pipeline;
}

void ModelShelf::put(const std::string& name, std::shared_ptr<DiffusionPipeline> pipeline) {
  std::lock_guard lock(mutex_);
  if (loaded(name)) return;
  loaded_.push_back({.name = name,
                     .pipeline = pipeline,
                     .tasks = {},
                     .loras = "",
                     .prompts = {},
                     .device = settings_.device,
                     .bytes = weight_bytes(*pipeline)});
  loaded_.back().used = ++uses_;
  for (auto& m : models_)
    if (m.name == name) m.class_name = pipeline->name();
}

std::shared_ptr<DiffusionPipeline> ModelShelf::load(const std::string& name, diffusion::Task task,
                                                    const std::string& vae, const std::set<std::string>& in_use) {
  std::set<std::string> stay = in_use;
  stay.insert(name);
  const Device device = settings_.device;
  if (Loaded* there = loaded(name); there && there->device != device) {
    const Device from = there->device;
    set_device(*there, device);  // its place there is free for what leaves
    try {
      make_room(device, 0, stay);
      while (true) {
        try {
          move(*loaded(name), device);
          break;
        } catch (const OutOfMemory&) {
          if (!take_from(device, stay)) throw;
        }
      }
    } catch (...) {
      move(*loaded(name), from);
      throw;
    }
  } else if (!there) {
    make_room_for(name, stay);
    for (;;) {
      try {
        put(name, read(name));
        break;
      } catch (const OutOfMemory&) {
        if (!take_from(device, stay)) throw;
      }
    }
  }
  Loaded& l = *loaded(name);
  l.used = ++uses_;
  if (!vae.empty()) {
    if (!l.tasks.count({task, vae})) {
      std::string path;
      {
        std::lock_guard lock(mutex_);
        path = named("vae", vaes_, vae).path;
      }
      const auto made = load(name, task, "", in_use)->clone();
      diffusion::replace_vae(*made, path, {.dtype = settings_.weights.dtype, .device = settings_.device});
      l.tasks[{task, vae}] = made;
    }
    return l.tasks[{task, vae}];
  }
  auto& of_task = l.tasks[{task, ""}];
  if (!of_task) {
    const auto& own = diffusion::pipeline_entry(l.pipeline->name());
    // Of a single file it is only known now that it makes clips.
    if (diffusion::makes_clips(own.its_task)) {
      if (task == diffusion::Task::TextToImage) task = diffusion::Task::TextToVideo;
      if (task == diffusion::Task::ImageToImage) task = diffusion::Task::ImageToVideo;
      if (own.its_task == diffusion::Task::ImageToVideo) task = own.its_task;  // which asks for its picture
    }
    const auto* entry = own.its_task == task ? &own : diffusion::find_pipeline(own.family_name, task);
    // A model of classes makes pictures of them, whatever it is asked by.
    if (!entry && task == diffusion::Task::TextToImage) entry = &own;
    if (!entry) entry = &diffusion::pipeline_for("model '" + name + "'", l.pipeline->name(), task);
    if (entry->name == own.name) {
      of_task = l.pipeline;
    } else {
      std::shared_ptr<DiffusionPipeline> made = entry->make();
      diffusion::share_components(*l.pipeline, *made);
      of_task = made;
    }
  }
  return of_task;
}

std::shared_ptr<DiffusionPipeline> ModelShelf::load_controlled(const std::string& name, diffusion::Task task,
                                                               const std::string& vae,
                                                               const std::vector<std::string>& controlnets,
                                                               const std::set<std::string>& in_use) {
  const auto beside = load(name, task, vae, in_use);
  const std::tuple key{task, vae, controlnets};
  if (auto& made = loaded(name)->controlled[key]) return made;
  std::vector<std::shared_ptr<models::Model>> networks;
  for (auto& net : controlnets) {
    std::shared_ptr<models::Model> model = loaded(name)->controlnets[net];
    if (!model) {
      std::string path;
      {
        std::lock_guard lock(mutex_);
        path = named("controlnet", controlnets_, net).path;
      }
      std::set<std::string> stay = in_use;
      stay.insert(name);
      make_room(settings_.device, bytes_of(path), stay);
      model = diffusion::load_controlnet(path, {.dtype = settings_.weights.dtype, .device = settings_.device});
      uint64_t bytes = 0;
      for (auto& p : nn::parameters(*model)) bytes += p.nbytes();
      std::lock_guard lock(mutex_);
      Loaded& l = *loaded(name);  // room may have been made before it in the list
      l.controlnets[net] = model, l.bytes += bytes;
    }
    networks.push_back(model);
  }
  return loaded(name)->controlled[key] = diffusion::controlled_pipeline("controlnet", *beside, task, networks);
}

void ModelShelf::use_loras(const std::string& name, const std::vector<diffusion::LoraTag>& loras) {
  Loaded& l = *loaded(name);
  const std::string wanted = text_of(loras);
  if (l.loras == wanted) return;
  const models::AdaptedModels networks = diffusion::adapted_models(*l.pipeline);
  std::map<std::string, std::pair<double, double>> on;  // by path: of the denoiser, of text encoders
  for (auto& tag : loras) {
    auto& weights = on[lora_path(tag.name)];
    weights.first += tag.denoiser, weights.second += tag.text_encoders;
  }
  auto has = [&](const std::string& path) {
    return std::any_of(networks.begin(), networks.end(),
                       [&](auto& n) { return n.second->has_adapters() && n.second->adapters().has(path); });
  };
  l.loras = "unknown";  // until all of it has worked
  l.prompts.forget();
  for (auto& [component, model] : networks) {
    if (!model->has_adapters()) continue;
    const auto names = model->adapters().names();
    if (names.size() > kKeptLoras)
      for (auto& other : names)
        if (!on.count(other)) model->adapters().remove(other);
  }
  for (auto& [path, weights] : on)
    if (!has(path)) models::load_lora(models::LoraFile(path), path, networks);
  for (auto& [component, model] : networks) {
    if (!model->has_adapters()) continue;
    std::vector<models::AdapterWeight> weights;
    for (auto& [path, both] : on)
      if (model->adapters().has(path))
        weights.push_back({path, component.starts_with("text_encoder") ? both.second : both.first});
    model->adapters().set(std::move(weights));
  }
  l.loras = wanted;
}

}  // namespace sf::server
