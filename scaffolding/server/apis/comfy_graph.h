// A graph of ComfyUI's nodes as one job: what is before its sampler is computed at once, what is behind it is done to
// the job's pictures when they are fetched. Functions that any thread may call, and plain structs.
#pragma once
#include <functional>

#include "scaffolding/server/apis/context.h"

namespace sf::server {

struct ComfyOutput {
  std::string node, kind;                               // "11", "ETN_SaveImageCache"
  std::function<Tensor(const Tensor& picture)> behind;  // uint8 [C, H, W]; empty: the picture as it is
};

struct ComfyJob {
  NewJob job;
  std::vector<ComfyOutput> outputs;
  std::vector<std::string> nodes;  // that it uses
  std::string sampler;             // the node
};

// Of a node: 400, and the answer that ComfyUI's clients read.
struct ComfyError : std::runtime_error {
  ComfyError(const std::string& message, std::string node = "", std::string kind = "")
      : std::runtime_error(message), node(std::move(node)), kind(std::move(kind)) {}
  std::string node, kind;
};

// images: bytes that were sent before, by their id; null where there are none.
using ComfyImages = std::function<std::shared_ptr<const std::string>(const std::string& id)>;
ComfyJob comfy_job(const Context& context, const json& graph, const ComfyImages& images);
json comfy_object_info(const Context& context);

}  // namespace sf::server
