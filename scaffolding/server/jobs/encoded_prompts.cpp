#include "scaffolding/server/jobs/encoded_prompts.h"

#include <algorithm>

#include "scaffolding/io/json.h"
#include "scaffolding/server/jobs/drawing.h"

namespace sf::server {

namespace {

// All of a request that may reach an encoder: the texts, and whatever says how they are read.
std::string key_of(const diffusion::DiffusionPipeline& pipeline, const JobRequest& r) {
  const json key{pipeline.name(), r.prompt, r.negative_prompt, guidance_of(r, pipeline), r.options};
  return io::tolerant_json_text(key);
}

bool is_prompt(const diffusion::OptionField& field) {
  return std::holds_alternative<std::vector<std::string>*>(field.place) &&
         std::string_view(field.name).find("prompt") != std::string_view::npos;
}

}  // namespace

void EncodedPrompts::put_into(const diffusion::AnyOptions& options, const diffusion::DiffusionPipeline& pipeline,
                              const JobRequest& request) {
  const std::string key = key_of(pipeline, request);
  auto at = std::find_if(entries_.begin(), entries_.end(), [&](auto& e) { return e.key == key; });
  if (at == entries_.end()) {
    Entry entry{key, pipeline.encoded_prompt(options), 0};
    std::erase_if(entry.tensors, [&](auto& t) { return !t.second || !options.find(t.first); });
    if (entry.tensors.empty()) return;
    for (auto& [name, t] : entry.tensors) entry.bytes += uint64_t(t.nbytes());
    bytes_ += entry.bytes;
    entries_.push_front(std::move(entry));
    while (entries_.size() > 1 && (entries_.size() > kMost || bytes_ > kMostBytes))
      bytes_ -= entries_.back().bytes, entries_.pop_back();
  } else {
    entries_.splice(entries_.begin(), entries_, at);
  }
  for (auto& [name, t] : entries_.front().tensors) options.at<Tensor>(name.c_str()) = t;
  for (auto& field : options.fields())
    if (is_prompt(field)) std::get<std::vector<std::string>*>(field.place)->clear();
}

}  // namespace sf::server
