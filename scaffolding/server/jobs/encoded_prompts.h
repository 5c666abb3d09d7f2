// What the text encoders of one model made of the last prompts: a job's other pictures, and the same prompt with
// another seed, need not wait for it again. One thread's.
#pragma once
#include <list>
#include <string>

#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::server {

struct JobRequest;

class EncodedPrompts {
 public:
  // In options of the pipeline that were set from the request: tensors instead of texts, equal to the bit. Options of
  // pipelines that encode none stay as they are.
  void put_into(const diffusion::AnyOptions& options, const diffusion::DiffusionPipeline& pipeline,
                const JobRequest& request);
  void forget() { entries_.clear(), bytes_ = 0; }  // the encoders are not what they were
  size_t size() const { return entries_.size(); }

  static constexpr size_t kMost = 64;
  static constexpr uint64_t kMostBytes = 16 << 20;  // the last prompt's are kept whatever they have

 private:
  using Tensors = std::vector<std::pair<std::string, Tensor>>;
  struct Entry {
    std::string key;
    Tensors tensors;
    uint64_t bytes;
  };
  std::list<Entry> entries_;  // the last used first
  uint64_t bytes_ = 0;
};

}  // namespace sf::server
