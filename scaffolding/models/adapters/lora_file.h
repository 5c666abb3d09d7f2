// LoraFile: the adapters of a LoRA file, whichever program wrote it, matched with the layers of a model.
//
//   AdapterStems unet = adapter_stems("UNet2DConditionModel", pipe.unet->config(), "unet");     // once for each model
//   LoraFile file("style.safetensors");
//   LoraMatch lora = file.match({&unet, &text_encoder});
//   for (auto& layer : lora.layers["unet"]) { check_lora_values(layer, file.path()); ... }
//
// Tensors borrow the mapped file, in its dtype; but for alphas none of them is read here. Const use is thread-safe.
#pragma once
#include <memory>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/adapters/lora_config.h"
#include "scaffolding/models/adapters/lora_keys.h"
#include "scaffolding/models/names/adapter_names.h"

namespace sf::models {

inline constexpr int64_t kMostLoraRank = 1 << 14;

// What is added to rows [row, row + rows) of a module's weight: scale * up * mid * down, as matrices or convolutions.
struct LoraLayer {
  std::string module;  // of the component
  std::string stem;    // of its keys in the file
  Tensor down;         // [rank, I] for a linear layer; [rank, I, kh, kw] for a convolution, [rank, I, 1, 1] before mid
  Tensor mid;          // [rank, rank, kh, kw] of a convolution; undefined: none
  Tensor up;           // [rows, rank]; [rows, rank, 1, 1]
  int64_t rank = 0, row = 0, rows = 0;
  double alpha = 0, scale = 0;  // alpha / rank, and by its square root with rsLoRA
};

// What became of one key of the file.
struct LoraKey {
  enum Use : uint8_t { Applied, Unused, WrongShape } use = Unused;
  std::string key;
  std::string component, module;  // of Applied and WrongShape; of several modules, joined in the file, the first
  std::string why;                // of Unused and WrongShape: shapes and rule
};

struct LoraReport {
  std::vector<LoraKey> keys;  // each of the file's once, in the file's order
  size_t count(LoraKey::Use use) const;
};

struct LoraMatch {
  std::map<std::string, std::vector<LoraLayer>> layers;  // by component: those that anything is for
  LoraReport report;
};

// Of a folder, the file that its program would take; else the path itself.
std::string lora_file_of(const std::string& path);
// By component, of a pipeline's folder with a folder of PEFT's for each ("unet/", "text_encoder/"); else empty.
std::map<std::string, std::string> lora_parts_of(const std::string& folder);
// What LoraFile opens: of a folder those, its program's file, or the one .safetensors there is. ValueError for a folder
// with none, or with several others.
std::vector<std::string> lora_files_of(const std::string& path);
// PEFT's config of its file, or "".
std::string lora_config_beside(const std::string& file);

class LoraFile {
 public:
  // A file, or a folder with one: PEFT's adapter_model beside adapter_config.json, diffusers' pytorch_lora_weights, or
  // the one .safetensors there is. Or a pipeline's folder with such a folder of PEFT's for each component.
  // RuntimeError when it cannot be read; ValueError when it is damaged, is no LoRA, or has a layer of which a half is
  // missing or whose alpha is 0.
  explicit LoraFile(const std::string& path);
  // One that is open. path: for errors. config: instead of what the file's metadata or the file beside it say.
  LoraFile(std::shared_ptr<const io::Checkpoint> file, const std::string& path,
           std::optional<LoraConfig> config = std::nullopt);
  ~LoraFile();
  LoraFile(const LoraFile&) = delete;

  // Whether most names are an adapter's.
  static bool recognises(const io::Checkpoint& file);

  const std::string& path() const { return path_; }
  // That of most keys: "kohya", "diffusers", "diffusers_old" (before it used PEFT), "peft" or "comfyui".
  const char* format() const { return format_; }
  const io::Checkpoint& checkpoint() const { return *file_; }
  std::map<std::string, std::string> metadata() const { return file_->metadata(); }

  // One stem's keys.
  struct Stem {
    std::string_view name;
    int64_t rank = 0;             // 0: it has no down
    std::optional<double> alpha;  // of its own key
    const char* kind = nullptr;   // of another adapter than a plain LoRA: "LoHa"
    int down = -1, mid = -1, up = -1, alpha_key = -1;
    std::vector<int> others;
  };
  const std::vector<Stem>& stems() const { return stems_; }
  // How many stems name layers of these components that their shapes fit.
  size_t fitting(const std::vector<const AdapterStems*>& components) const;

  // The layers of all components. strict: ValueError, or NotSupported for other adapters than LoRA, naming the first of
  // the keys that are not applied; otherwise these are left out, stem by stem, and the report tells. ValueError in both
  // cases for a LoRA of which nothing fits, for two keys that change the same rows, and for ranks that contradict the
  // config's.
  LoraMatch match(const std::vector<const AdapterStems*>& components, bool strict = true) const;

 private:
  struct Found {  // what a stem is for
    const AdapterStems* component = nullptr;
    const AdaptedWeight* weight = nullptr;  // null: nothing here
    int misfit_key = -1;
    std::string misfit;  // how its shape is wrong
    bool fits() const { return weight && misfit.empty(); }
  };
  struct Opened {
    std::shared_ptr<const io::Checkpoint> file;
    std::string path;
    std::optional<LoraConfig> config;
  };
  explicit LoraFile(Opened opened);
  static Opened open(const std::string& path);
  void read_names();
  void read_stem(Stem& stem) const;
  void check_alpha(double alpha, const std::string& what) const;
  [[noreturn]] void fail_as_no_lora(const std::string& outer) const;
  // Of several components that have such a layer, two text encoders: one that it fits, and of these the one whose class
  // the config names, or the first.
  Found find(const Stem& stem, const std::vector<const AdapterStems*>& components) const;
  Found fit(const Stem& stem, const AdapterStems& component, const AdaptedWeight& weight) const;
  LoraReport report(const std::vector<Found>& found) const;
  [[noreturn]] void fail_strictly(const LoraReport& report, const std::vector<Found>& found,
                                  const std::vector<const AdapterStems*>& components) const;
  void add_layers(LoraMatch& out, const Stem& stem, const Found& found) const;
  const Shape& shape(int key) const { return entries_[size_t(key)].shape; }
  const std::string& name(int key) const { return entries_[size_t(key)].name; }
  static std::vector<int> keys_of(const Stem& stem);

  std::string path_;
  std::shared_ptr<const io::Checkpoint> file_;
  LoraConfig config_;
  const char* format_ = "";
  std::vector<io::CheckpointEntry> entries_;
  std::vector<Stem> stems_;     // in the order of their first keys
  std::vector<int> strangers_;  // keys that are of no adapter
};

// ValueError naming the tensor when a value of the layer is NaN or infinite. Reads all of it, on the calling thread;
// the tensors are in host memory.
void check_lora_values(const LoraLayer& layer, const std::string& path);
bool all_finite(const Tensor& t);

}  // namespace sf::models
