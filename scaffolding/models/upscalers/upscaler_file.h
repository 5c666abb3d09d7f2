// Files of networks that enlarge pictures (.pth, .safetensors), which have no config: what a file is follows from the
// names and shapes of its tensors.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/object.h"
#include "scaffolding/models/model_files.h"

namespace sf::models {

// Shapes by name, and what stands before names: "params_ema.", "params." in Real-ESRGAN's files.
class TensorShapes {
 public:
  explicit TensorShapes(const std::vector<io::CheckpointEntry>& tensors);  // as long as this lives
  const Shape* find(const std::string& name) const;                        // null: there is none
  bool has(const std::string& name) const { return find(name); }
  // ValueError naming `who` where there is none of four dimensions, the last two 3.
  Shape kernel(const char* who, const std::string& name) const;
  // What stands before these names wherever all are there; averaged weights first.
  std::vector<std::string> before(const std::vector<std::string>& names) const;

 private:
  std::map<std::string_view, const Shape*> tensors_;
};

struct UpscalerKind {
  std::string class_name;  // "RRDBNet", "SRVGGNetCompact"
  io::Object config;
};
// Absent for files of other models. ValueError for damaged ones, NotSupported for what is like them and not the same.
std::optional<UpscalerKind> recognise_upscaler(const std::vector<io::CheckpointEntry>& tensors);
int64_t scale_of(const UpscalerKind& kind);
// "RRDBNet of 23 blocks and 64 channels, which enlarges pictures by 4"
std::string describe(const UpscalerKind& kind);

// The model of such a file, or of a folder that save_model wrote. ValueError naming the path for other models, and
// where tensors are missing, of another shape, or of no layer.
std::unique_ptr<Model> load_upscaler(const std::string& path, const LoadModelOptions& options = {});

}  // namespace sf::models
