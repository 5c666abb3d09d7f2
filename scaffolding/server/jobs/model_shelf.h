// The models that the server offers, by name, and those of them that are in memory: several within a budget, the one
// that was used longest ago goes first. Names may be asked by any thread; one thread, the worker's, loads.
#pragma once
#include <mutex>

#include "scaffolding/core/device.h"
#include "scaffolding/core/dtype.h"
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/models/adapters/lora_folders.h"
#include "scaffolding/server/jobs/job.h"

namespace sf::server {

struct ShelfModel {
  std::string name, path;
  std::string title;       // as AUTOMATIC1111's clients show it: the file's name with its suffix
  std::string class_name;  // of the pipeline; "" of a single file that was not loaded yet
  uint64_t bytes = 0;      // of its files
};

struct ShelfSettings {
  std::vector<std::string> folders, lora_folders;
  std::string default_model;  // its name; "": the one that comes with Scaffolding
  DType dtype = kFloat32;
  Device device = {};
  uint64_t budget = 0;  // bytes of weights in memory; 0: three quarters of what was free at the start
};

class ModelShelf {
 public:
  // ValueError for a folder that is not there, and for a default that no folder has.
  explicit ModelShelf(ShelfSettings settings);

  void refresh();  // looks through the folders again
  std::vector<ShelfModel> models() const;
  std::string default_model() const;
  // By name, title or file name, whatever the case. ValueError naming the nearest for one that is not here.
  ShelfModel find(const std::string& name) const;
  std::vector<std::string> lora_names() const;
  std::string lora_path(const std::string& name) const;  // ValueError where it is not there, or several are
  std::vector<std::string> lora_folders() const { return settings_.lora_folders; }

  // ---- the worker's
  // The pipeline of the model for this task, loaded where it is not. What is in use is never taken out: its networks
  // live as long as runs have them.
  std::shared_ptr<diffusion::DiffusionPipeline> load(const std::string& name, diffusion::Task task);
  // Of a loaded model: these LoRAs are on, and no others. Files that were loaded before are kept.
  void use_loras(const std::string& name, const std::vector<diffusion::LoraTag>& loras);
  bool is_loaded(const std::string& name) const;
  bool unload_oldest();  // false where nothing is loaded
  void unload_all();

  std::vector<std::string> resident() const;
  uint64_t resident_bytes() const;
  DType dtype() const { return settings_.dtype; }

 private:
  struct Loaded {
    std::string name;
    std::shared_ptr<diffusion::DiffusionPipeline> pipeline;
    std::map<diffusion::Task, std::shared_ptr<diffusion::DiffusionPipeline>> tasks;
    std::string loras;  // those that are on, as text
    uint64_t bytes = 0, used = 0;
  };
  Loaded* loaded(const std::string& name);
  void make_room(uint64_t bytes);
  ShelfSettings settings_;
  mutable std::mutex mutex_;
  std::vector<ShelfModel> models_;
  std::unique_ptr<models::LoraFolders> loras_;
  std::vector<Loaded> loaded_;
  uint64_t uses_ = 0;
};

}  // namespace sf::server
