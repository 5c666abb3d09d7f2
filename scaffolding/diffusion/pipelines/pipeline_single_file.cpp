#include "scaffolding/diffusion/pipelines/pipeline_single_file.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/pipeline_files.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/models/model.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::diffusion {

SingleFileContent single_file_content(const DiffusionPipeline& p) {
  auto& pipeline = const_cast<DiffusionPipeline&>(p);
  PipelineIndex index{.class_name = p.name(),
                      .guidance_scale = p.advised_guidance_scale,
                      .config = io::write_fields(pipeline.fields())};
  models::PackedFiles files;
  std::map<std::string, models::ModelPart> parts;
  for (auto& slot : pipeline.components()) {
    PipelineIndex::Row row{slot.name, "", ""};
    if (Component* network = slot.network()) {
      models::Model* model = network->model();
      SF_CHECK_AS(NotSupported, model, "pipeline: ", slot.name,
                  " is no model of this library, and cannot be saved from here");
      for (auto& m : nn::named_modules(*model))
        SF_CHECK_AS(NotSupported, !nn::is_quantized(*m.module), "save_single_file: '", slot.name, ".", m.name,
                    "' is quantised (", m.module->type(),
                    "), and a single file would hold its blocks under the dense "
                    "weight's name; save_pretrained of the Python package keeps them");
      auto& part = parts[slot.name];
      part.class_name = model->type();
      for (auto& [key, t] : nn::state_dict(*model)) part.tensors.emplace(key, t);
      files.emplace(slot.name + "/config.json", io::format_config(model->saved_config()));
      row = {slot.name, model->library(), model->type()};
    } else if (auto* scheduler = slot.as<Ref<Scheduler>>(); scheduler && *scheduler) {
      files.emplace(slot.name + "/scheduler_config.json", io::format_config((*scheduler)->saved_config()));
      row = {slot.name, "diffusers", (*scheduler)->name()};
    } else if (auto* tokenizer = slot.as<Ref<const tokenizers::Tokenizer>>(); tokenizer && *tokenizer) {
      for (auto& [name, text] : (*tokenizer)->files()) files.emplace(slot.name + "/" + name, text);
      row = {slot.name, "transformers", (*tokenizer)->class_name()};
    }
    index.rows.push_back(std::move(row));
  }
  files.emplace("model_index.json", io::format_config(pipeline_index_dict(index)));

  SingleFileContent out{.metadata = models::packed_metadata(files), .kind = models::kind_of_parts(parts)};
  out.metadata.emplace("format", "pt");
  if (out.kind) {
    std::map<std::string, std::map<std::string, Tensor>> tensors;
    for (auto& [name, part] : parts) tensors.emplace(name, std::move(part.tensors));
    out.tensors = models::to_single_file(out.kind->name, tensors);
    return out;
  }
  for (auto& [name, part] : parts)
    for (auto& [key, t] : part.tensors) out.tensors.emplace(name + "." + key, t);
  return out;
}

void save_single_file(const DiffusionPipeline& pipeline, const std::string& path, std::optional<DType> dtype) {
  SingleFileContent content = single_file_content(pipeline);
  for (auto& [name, t] : content.tensors)
    if (dtype && is_floating(t.dtype())) t = to_dtype(t, *dtype);
  io::save_safetensors(content.tensors, path, content.metadata);
}

}  // namespace sf::diffusion
