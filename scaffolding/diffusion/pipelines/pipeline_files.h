// Pipelines in folders and single files, as diffusers writes them: model_index.json, and a folder for each component.
// What is loaded from where is decided once, as a plan, and carried out by C++ here or by a language binding with its
// own classes.
#pragma once
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/io/hub/hub.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/models/single_file/single_file.h"

namespace sf::diffusion {

// model_index.json. A row without a class is a component that is left out (safety_checker: [null, null]).
struct PipelineIndex {
  struct Row {
    std::string name, library, class_name;
  };
  std::string class_name;  // of the pipeline
  std::vector<Row> rows;
  std::optional<double> guidance_scale;  // "_guidance_scale", a key of our own which diffusers passes over
  io::Object config = io::Object::container(io::Object::Dict);  // its other fields
};
// ValueError naming file and entry for what is none.
PipelineIndex read_pipeline_index(const std::string& folder);
PipelineIndex parse_pipeline_index(const io::Object& dict, const std::string& path);
void write_pipeline_index(const PipelineIndex& index, const std::string& folder);  // the folder is made
io::Object pipeline_index_dict(const PipelineIndex& index);                        // as it is written

enum class ComponentKind : uint8_t { None, Model, Scheduler, Tokenizer };
// ValueError naming the row for a class that is not known.
ComponentKind component_kind(const PipelineIndex::Row& row);

// ---- what is to be loaded

struct ComponentSource {
  std::string name;
  ComponentKind kind = ComponentKind::None;
  std::string class_name;
  std::string folder;   // ""; of a model in the single file, of a scheduler by `config`, of a tokenizer it itself
  std::string library;  // of a scheduler that is a class of Python: its module; else ""
  std::string variant;  // of its weights, where it has files of that variant
  io::Object config = io::Object::container(io::Object::Dict);  // of a model, what its folder's config.json says
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;       // of a single file: what goes with it
};

struct LoadPlan {
  const PipelineEntry* entry = nullptr;
  std::vector<ComponentSource> components;  // in the order of the class
  std::vector<std::string> ignored;         // components that are there and have no use here
  std::vector<std::string> listed;          // every component that the folder names
  io::Object config;                        // the pipeline's other fields, as far as they are given
  std::optional<double> guidance_scale;
  std::shared_ptr<models::SingleFile> file;  // of a plan for one
};

struct PlanOptions {
  std::string class_name;           // of the pipeline; "": as the files say
  std::vector<std::string> passed;  // components that the caller brings
  std::string variant;              // ValueError where no component has files of it
};
// ValueError naming the file and what it lacks.
LoadPlan plan_pipeline(const std::string& folder, const PlanOptions& options = {});

struct SingleFilePlanOptions {
  std::string class_name;
  std::vector<std::string> passed;
  // a pipeline's folder: its tokenizers, its scheduler, and configs of networks of unusual size; "": what the file
  // brings, or what goes with its kind
  std::string config;
  models::SingleFileOptions file;
};
LoadPlan plan_single_file(const std::string& path, const SingleFilePlanOptions& options);

// ---- loading

// Of components: {"transformer": ...}. "" is of all without one of their own, but autoencoders. ValueError for a name
// that is no network of the pipeline.
using QuantizeConfigs = std::map<std::string, std::shared_ptr<const nn::QuantizeConfig>>;
// nn::QuantizeConfig::named(who, word) for all networks but autoencoders; empty for "".
QuantizeConfigs quantize_all(const char* who, const std::string& word);

struct LoadPipelineOptions {
  std::string variant;  // "fp16"; components that have no such files are read without. ValueError where none has
  std::optional<DType> dtype;
  Device device = {};
  std::optional<bool> use_safetensors;
  io::HubOptions hub;      // where the folder is the name of a repository
  std::string class_name;  // the pipeline's, instead of the folder's
  QuantizeConfigs quantize;
  std::optional<int64_t> keep_half_from;  // as in models::LoadModelOptions
};
struct LoadedPipeline {
  std::shared_ptr<DiffusionPipeline> pipeline;
  std::vector<std::string> ignored;  // components that have no use here
};
// A folder, or a repository of the hub ("organisation/name") in its cache, downloaded where that is allowed. Of a known
// class: StableDiffusionPipeline::from_pretrained(folder).
LoadedPipeline load_pipeline(const std::string& folder, const LoadPipelineOptions& options = {});

struct LoadSingleFileOptions {
  std::optional<DType> dtype;
  Device device = {};
  std::string config;           // as in SingleFilePlanOptions
  std::string prediction_type;  // "epsilon", "v_prediction"; "": as the kind has it
  bool extract_ema = false;
  io::HubOptions hub;                     // where the file is an address
  QuantizeConfigs quantize;               // what the file has in blocks, and keep_blocks keeps so, stays
  bool keep_blocks = false;               // as in models::LoadModelOptions
  std::optional<int64_t> keep_half_from;  // the same
};
// From one checkpoint file, or its address on the hub.
LoadedPipeline load_single_file_pipeline(const std::string& path_or_link, const LoadSingleFileOptions& options = {});

// Writes every component that is there, and model_index.json last. What was there before is replaced by all of it or
// by nothing (io/replacing_folder.h).
void save_pipeline(const DiffusionPipeline& pipeline, const std::string& folder,
                   const models::SaveModelOptions& options = {});

template <class Self, class O, class Base>
Self PipelineOf<Self, O, Base>::from_pretrained(const std::string& folder, const LoadPipelineOptions& options) {
  LoadPipelineOptions of_this = options;
  of_this.class_name = Self::kName;
  return static_cast<Self&>(*load_pipeline(folder, of_this).pipeline);
}

template <class Self, class O, class Base> Self PipelineOf<Self, O, Base>::from_pretrained(const std::string& folder) {
  return from_pretrained(folder, LoadPipelineOptions());
}

}  // namespace sf::diffusion
