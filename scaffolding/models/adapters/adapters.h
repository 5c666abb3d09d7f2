// Adapters: the LoRAs of one model by name. Which are on and how strongly, and the weights that fuse() made of them.
//
//   Adapters& adapters = unet.adapters();
//   adapters.add("style", file.match({&stems}).layers["unet"]);
//   adapters.set({{"style", 0.8}});
//
// What is on is a LoraPath on each of its layers (Module::adapt). The adapters' tensors belong to this object, not to
// the model: they are in no state dict. One thread at a time, and not while the model runs.
//
// An adapter can be trained: create() makes one that is, train() turns one on. Its factors are parameters then, in
// float32, and the layer's path is a TrainedLora, which no fused kernel goes past.
//
// On a GPU a layer's path is memory that stays: other adapters, weights and scales are written into it, so that CUDA
// graphs of the model go on. Another one is captured where a layer that had no path gets one, where ranks outgrow it
// (they are rounded up to a multiple of kSlotRanks), and from none on to some on; reserve() rules these out.
#pragma once
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "scaffolding/models/adapters/new_lora.h"
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/lora.h"

namespace sf::models {

inline LoraTerm term_of(const LoraLayer& layer) { return {layer.down, layer.up, layer.mid, layer.row, layer.scale}; }

// How strongly an adapter is on: for all its layers, or for each module by name.
struct AdapterWeight {
  std::string name;
  double weight = 1;
  std::function<double(const std::string& module)> of_module = {};  // instead of weight, where it is set
  double of(const std::string& module) const { return of_module ? of_module(module) : weight; }
};

class Adapters {
 public:
  explicit Adapters(Model& model);
  ~Adapters();
  Adapters(const Adapters&) = delete;

  // A new adapter, which is not on. ValueError, and nothing changes, for a name that is taken, a module that is not
  // there, shapes that are not its weight's, and numbers that are NaN or infinite; path is for these errors.
  void add(const std::string& name, std::vector<LoraLayer> layers, const std::string& path = "");
  // A new one to be trained (new_lora.h). It is on, alone. ValueError, and nothing changes, for a name that is taken
  // and as new_lora_layers().
  void create(const std::string& name, const NewLora& config, const Generator& generator = {});
  // From now on its factors are parameters, in float32 and in memory of its own; a middle factor is multiplied in. Off:
  // they are not, and the paths are those of inference. ValueError for one that is fused or not there, NotSupported for
  // one with several factors beside one layer.
  void train(const std::string& name, bool on = true);
  bool trains(const std::string& name) const { return at(name).trained; }
  // Of those that are trained, {"down_blocks.0....to_q.lora_A.style.weight": tensor}: PEFT's names.
  std::vector<std::pair<std::string, Tensor>> parameters() const;

  std::vector<std::string> names() const;  // in the order of adding
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // ValueError naming those there are, for one that is not.
  const std::vector<LoraLayer>& layers(const std::string& name) const { return at(name).layers; }
  void remove(const std::string& name);  // a fused one stays in the weights
  // To another name; what had that one is gone, and this is on as strongly as it was.
  void rename(const std::string& name, const std::string& to);

  // These are on and no others. ValueError naming those there are, for one that is not.
  void set(std::vector<AdapterWeight> on);
  void turn_on(AdapterWeight weight);       // besides those that are on
  std::vector<std::string> active() const;  // in the order of set()
  // All off, and on again as they were. active() stays.
  void enable(bool on);
  bool is_enabled() const { return enabled_; }
  // A factor of all that is on, for a call's cross_attention_kwargs={"scale": ...}.
  void scale(double factor);
  // Puts the paths on the layers anew, after the model went to another device or dtype.
  void refresh();
  // On a GPU: memory for ranks of so many in all beside every layer that can have a path, from now on and whether an
  // adapter is on or not; 0 gives it back.
  static constexpr int64_t kSlotRanks = 16;
  void reserve(int64_t rank);

  // The names that adapters have for the modules of this model, which a pipeline calls `component`. They stay.
  const AdapterStems& stems(const std::string& component);

  // Adds scale times what is on (or the named ones that are on) to the weights themselves: summed in float32 and
  // rounded once. The old weights are kept on the host; the fused adapters are off until unfuse(),
  // which puts the old bytes back.
  // safe: ValueError, before anything changes, where a sum is NaN or infinite. NotSupported for quantised layers.
  void fuse(double scale = 1, bool safe = false, const std::optional<std::vector<std::string>>& names = {});
  void unfuse();
  const std::vector<std::string>& fused() const { return fused_; }  // names, of removed ones too

 private:
  struct Adapter {
    std::string name;
    std::vector<LoraLayer> layers;
    std::unordered_map<std::string, std::vector<LoraTerm>> terms;  // by module, in a dtype and on a device
    DType dtype = kFloat32;
    Device device = {};
    bool fused = false;
    bool trained = false;
    double dropout = 0;  // of its paths' inputs, while it trains
  };
  using ByModule = std::unordered_map<std::string_view, std::vector<LoraTerm>>;
  // Makes the terms from the layers. path: for errors of values, which are looked at where it is given.
  void make_terms(Adapter& adapter, const std::string* path = nullptr) const;
  std::vector<nn::Module*> modules_of(const Adapter& adapter) const;  // of each of its layers
  Adapter* find(const std::string& name);
  const Adapter* find(const std::string& name) const;
  const Adapter& at(const std::string& name) const;
  // What is on by module: f(adapter, module) gives the terms of one. Fused ones are left out, and with names all
  // but these.
  ByModule what_is_on(const std::vector<std::string>* names,
                      const std::function<std::vector<LoraTerm>(const Adapter&, const std::string&)>& f) const;
  // The path that a layer has for these terms; null: none.
  std::shared_ptr<const nn::Adapter> path_of(const std::string& name, const nn::Module& layer,
                                             const std::vector<LoraTerm>& terms, bool any_is_on, DType dtype,
                                             Device device);

  Model& model_;
  std::vector<Adapter> adapters_;
  std::vector<AdapterWeight> on_;
  bool enabled_ = true;
  double factor_ = 1;
  std::unordered_set<std::string> adapted_;                           // modules that have a path now
  std::unordered_map<std::string, std::shared_ptr<LoraPath>> slots_;  // on a GPU, by module
  int64_t reserved_ = 0;
  std::vector<std::string> fused_;
  std::map<std::string, Tensor> old_weights_;  // of fused modules
  std::map<std::string, AdapterStems> stems_;  // by component
};

}  // namespace sf::models
