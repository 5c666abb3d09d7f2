// The models that the server offers, by name, and those of them that are in memory: several within a budget of each
// device. The one that was used longest ago goes first, never one in use: from a GPU to the host's memory, from there
// out of it. Names may be asked, and models read, by any thread; one thread's, the worker's, are those in memory.
#pragma once
#include <mutex>
#include <set>

#include "scaffolding/core/device.h"
#include "scaffolding/diffusion/pipelines/pipeline_files.h"
#include "scaffolding/models/adapters/lora_folders.h"
#include "scaffolding/server/jobs/encoded_prompts.h"
#include "scaffolding/server/jobs/file_hashes.h"
#include "scaffolding/server/jobs/job.h"

namespace sf::server {

struct ShelfModel {
  std::string name, path;
  std::string title;       // as AUTOMATIC1111's clients show it: the file's name with its suffix
  std::string class_name;  // of the pipeline; "" of a single file that was not loaded yet
  uint64_t bytes = 0;      // of its files
  bool makes_clips() const;
};

struct ShelfSettings {
  std::vector<std::string> folders, lora_folders, controlnet_folders;
  std::string default_model;  // its name; "": the one that comes with Scaffolding
  WeightTypes weights;
  Device device = {};
  std::string hashes;  // a file where those of model files are kept; "": nowhere
  // Bytes of weights in the host's memory, and in that of the GPU that the device is; 0: three quarters of what was
  // free there at the start.
  uint64_t budget = 0, gpu_budget = 0;
};

class ModelShelf {
 public:
  // ValueError for a folder that is not there, and for a default that no folder has.
  explicit ModelShelf(ShelfSettings settings);

  void refresh();  // looks through the folders again
  std::vector<ShelfModel> models() const;
  // Pipelines of the folders that cannot be served, by name, and why.
  std::vector<std::pair<std::string, std::string>> refused() const;
  std::string default_model() const;
  // By name, title or file name, whatever the case, or the first digits of its hash, in AUTOMATIC1111's brackets behind
  // a title or not. ValueError naming the nearest for one that is not here.
  ShelfModel find(const std::string& name) const;
  std::string hash_of(const ShelfModel& model) const;  // SHA-256; "" of a folder, and where it is not known yet
  std::vector<std::string> upscaler_names() const;
  std::string upscaler_path(const std::string& name) const;  // ValueError where it is not there
  std::vector<std::string> vae_names() const;
  std::string vae_name(const std::string& name) const;  // by name, file name or case. ValueError where it is not there
  std::vector<std::string> controlnet_names() const;
  std::string controlnet_name(const std::string& name) const;  // as vae_name()
  std::vector<std::string> lora_names() const;
  std::string lora_path(const std::string& name) const;  // ValueError where it is not there, or several are
  std::vector<std::string> lora_folders() const { return settings_.lora_folders; }

  // The model from its files, on its device, beside what else happens. ValueError where there is none any more.
  std::shared_ptr<diffusion::DiffusionPipeline> read(const std::string& name) const;

  // ---- the worker's
  // Where read() made it: it is in memory from now on.
  void put(const std::string& name, std::shared_ptr<diffusion::DiffusionPipeline> pipeline);
  // Takes others from the device, those used longest ago first and none of `in_use`, until that model has room
  // there. Whether it has.
  bool make_room_for(const std::string& name, const std::set<std::string>& in_use);
  // The pipeline of the model for this task, on the device, loaded where it is not, with its own autoencoder or another
  // one. Its networks live as long as runs have them.
  std::shared_ptr<diffusion::DiffusionPipeline> load(const std::string& name, diffusion::Task task,
                                                     const std::string& vae = "",
                                                     const std::set<std::string>& in_use = {});
  // The same with ControlNets beside its UNet, by their names of the shelf. They are in memory as long as the model.
  std::shared_ptr<diffusion::DiffusionPipeline> load_controlled(const std::string& name, diffusion::Task task,
                                                                const std::string& vae,
                                                                const std::vector<std::string>& controlnets,
                                                                const std::set<std::string>& in_use = {});
  // Of a loaded model: these LoRAs are on, and no others. Files that were loaded before are kept.
  void use_loras(const std::string& name, const std::vector<diffusion::LoraTag>& loras);
  // Of a loaded model with the LoRAs that are on.
  EncodedPrompts& encoded_prompts(const std::string& name) { return loaded(name)->prompts; }
  bool is_loaded(const std::string& name) const;
  // The one on the device that was used longest ago goes. false where there is no other.
  bool unload_oldest(const std::set<std::string>& but = {});
  void unload_all();

  struct Resident {
    std::string name;
    Device device;
    uint64_t bytes;  // of its weights
  };
  std::vector<Resident> resident() const;
  uint64_t resident_bytes() const;               // in all
  uint64_t resident_bytes(Device device) const;  // of one
  const WeightTypes& weights() const { return settings_.weights; }
  Device device() const { return settings_.device; }

 private:
  struct Loaded {
    std::string name;
    std::shared_ptr<diffusion::DiffusionPipeline> pipeline;
    std::map<std::pair<diffusion::Task, std::string>, std::shared_ptr<diffusion::DiffusionPipeline>> tasks;  // and vae
    std::map<std::string, std::shared_ptr<models::Model>> controlnets;  // that were asked for beside it
    // by task, vae and ControlNets
    std::map<std::tuple<diffusion::Task, std::string, std::vector<std::string>>,
             std::shared_ptr<diffusion::DiffusionPipeline>>
        controlled;
    std::string loras;  // those that are on, as text
    EncodedPrompts prompts;
    Device device;  // where it is
    uint64_t bytes = 0, used = 0;
  };
  Loaded* loaded(const std::string& name);
  uint64_t budget(Device device) const;
  bool take_from(Device device, const std::set<std::string>& but);  // unload_oldest() of one
  bool make_room(Device device, uint64_t bytes, const std::set<std::string>& in_use);
  void move(Loaded& model, Device device);
  void set_device(Loaded& model, Device device);
  ShelfSettings settings_;
  diffusion::QuantizeConfigs quantize_;
  mutable std::mutex mutex_;
  FileHashes hashes_;
  std::vector<ShelfModel> models_, upscalers_, vaes_, controlnets_;
  std::vector<std::pair<std::string, std::string>> refused_;
  std::unique_ptr<models::LoraFolders> loras_;
  std::vector<Loaded> loaded_;
  uint64_t uses_ = 0;
};

}  // namespace sf::server
