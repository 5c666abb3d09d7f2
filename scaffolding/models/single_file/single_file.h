// SingleFile: a model in one checkpoint (.safetensors, .ckpt) with the names of whose code it comes from (CompVis',
// Lightricks'), taken apart into diffusers' parts; or any pipeline in a safetensors file that brings its configs
// (packed_files.h). Tensors are taken one by one and borrow the mapped file, but for those that a transpose or the
// file's format makes copies of. Const use is thread-safe.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/models/names/name_table.h"
#include "scaffolding/models/single_file/kinds.h"
#include "scaffolding/models/single_file/packed_files.h"

namespace sf::models {

struct SingleFileOptions {
  std::map<std::string, io::Object>
      configs;                     // of parts, in place of the kind's: {"unet": {...}} for a model of unusual size
  std::string prediction_type;     // "epsilon" or "v_prediction"; "": as the kind has it
  std::vector<std::string> parts;  // models that are wanted; others are not looked at. Empty: all
  bool extract_ema =
      false;  // the UNet's averaged weights (model_ema.*) in place of the last ones; ValueError where there are none
  // Of parts and configs only those that are of this class in the file's kind; "": of any.
  std::string class_name = {};
  bool configs_of_pipeline = false;  // which may have parts that the kind has not; else those are errors
};

class SingleFile {
 public:
  // RuntimeError when the file cannot be read; ValueError when it is damaged, is no such model, lacks tensors of a part
  // that it has, or has some of another shape; NotSupported for models of other families.
  explicit SingleFile(const std::string& path, const SingleFileOptions& options = {});
  // Whether the file is for load_single_model(): a network of this class may come alone, and the file is none of the
  // kinds and brings no configs.
  static bool is_alone(const std::string& path, const std::string& class_name);
  SingleFile(const SingleFile&) = delete;

  struct Part {
    std::string name, library, class_name;
    io::Object config;
  };
  const SingleFileKind& kind() const { return *kind_; }
  bool has_configs() const { return packed_.has_value(); }   // the kind is the file's own
  io::Object model_index() const;                            // as diffusers writes it, with the parts that the file has
  const std::vector<Part>& parts() const { return parts_; }  // sorted by name; "scheduler" has a config alone
  const Part& part(const std::string& name) const;           // ValueError naming those there are

  // of its tensors, here and in the file; the scheduler has none
  const NameTable& names(const std::string& part) const;
  Tensor tensor(const std::string& part, const std::string& name) const;
  // The part as a model, in eval mode: of options, dtype, device and overrides.
  std::unique_ptr<Model> load(const std::string& part, const LoadModelOptions& options = {}) const;
  std::vector<std::string> unused() const;  // names in the file that belong to no part

 private:
  void add_part(const SingleFilePart& part, const std::string& outer, const SingleFileOptions& options);
  std::string path_;
  std::shared_ptr<const io::Checkpoint> file_;
  std::optional<SingleFileKind> packed_;
  const SingleFileKind* kind_;
  std::vector<Part> parts_;
  std::map<std::string, NameTable> names_;                              // of each part that is a model
  std::map<std::string, std::shared_ptr<const io::Checkpoint>> files_;  // of each, with the identities that file_ lacks
  mutable std::map<std::string, std::unique_ptr<Model>> made_;  // without memory, for the first load of each part
};

// The names of a part in the place where its kind writes it, for a model with this config.
NameTable single_file_names(const SingleFilePart& part, const io::Object& config);

// A model's part in a pipeline, to be written.
struct ModelPart {
  std::string class_name;
  std::map<std::string, Tensor> tensors;
};
// The published kind that has exactly these parts, with tensors of these names and shapes; null where there is none.
const SingleFileKind* kind_of_parts(const std::map<std::string, ModelPart>& parts);

// The other way: the tensors of one checkpoint with LDM's names. `parts`: tensors of each part under diffusers' names;
// `configs`: config.json of each, or the kind's where there is none. ValueError for a tensor that is missing,
// too many, or of another shape.
std::map<std::string, Tensor> to_single_file(const std::string& kind,
                                             const std::map<std::string, std::map<std::string, Tensor>>& parts,
                                             const std::map<std::string, io::Object>& configs = {});

}  // namespace sf::models
