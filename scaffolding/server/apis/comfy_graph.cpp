#include "scaffolding/server/apis/comfy_graph.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/io/json.h"
#include "scaffolding/server/apis/comfy_evaluation.h"

namespace sf::server {

namespace {

constexpr size_t kMostNodes = 500, kMostDepth = 200;

}  // namespace

const ComfyNode* find_node(const std::string& name) {
  for (auto& n : comfy_nodes())
    if (n.name == name) return &n;
  return nullptr;
}

void ComfyEvaluation::check() {
  if (!graph_.is_object() || graph_.empty()) throw ComfyError("prompt: must be an object of nodes");
  if (graph_.size() > kMostNodes) throw ComfyError("prompt: at most " + std::to_string(kMostNodes) + " nodes");
  std::string unknown;
  for (auto& [id, node] : graph_.items()) {
    if (!node.is_object() || !node.value("class_type", json()).is_string())
      throw ComfyError("node " + id.substr(0, 20) + " has no class_type", id);
    if (!node.value("inputs", json::object()).is_object()) throw ComfyError("node " + id + ": inputs", id);
    const std::string kind = node["class_type"];
    const std::string shown = kind.empty() ? "''" : printable(kind.substr(0, 80));
    if (!find_node(kind) && unknown.find(shown) == std::string::npos) unknown += (unknown.empty() ? "" : ", ") + shown;
  }
  if (!unknown.empty()) throw ComfyError("this server has no nodes of the kinds " + unknown.substr(0, 2000));
}

void ComfyEvaluation::run() {
  check();
  for (auto& [id, node] : graph_.items())
    if (find_node(node["class_type"])->outputs.empty()) values_of(id);
  if (out.outputs.empty()) throw ComfyError("the graph has no output: SaveImage, PreviewImage or ETN_SaveImageCache");
  if (out.sampler.empty()) throw ComfyError("the graph has no sampler: pictures are made by one");
  for (auto& [id, values] : values_) out.nodes.push_back(id);
}

void ComfyEvaluation::refuse(const std::string& why) const {
  throw ComfyError(kind() + " (node " + printable(id().substr(0, 40)) + "): " + why, id(), kind());
}

double ComfyEvaluation::number(const char* name, double least, double most) {
  const json* in = input(name);
  const json v = in ? *in : usual(name);
  if (!v.is_number()) refuse(std::string(name) + " must be a number, got " + shown(v));
  const double n = v.get<double>();
  if (!(n >= least && n <= most))
    refuse(std::string(name) + " must be from " + io::json_text(json(least)) + " to " + io::json_text(json(most)) +
           ", got " + shown(v));
  return n;
}

int64_t ComfyEvaluation::whole(const char* name, int64_t least, int64_t most) {
  const json* in = input(name);
  if (in && in->is_number_unsigned() && in->get<uint64_t>() > uint64_t(most))
    refuse(std::string(name) + " must be at most " + std::to_string(most));
  if (in && in->is_number_integer()) {  // seeds have more digits than a double
    const int64_t v = in->get<int64_t>();
    if (v < least || v > most)
      refuse(std::string(name) + " must be from " + std::to_string(least) + " on, got " + shown(*in));
    return v;
  }
  const double n = number(name, double(least), double(most));
  if (n != std::floor(n)) refuse(std::string(name) + " must be a whole number");
  return int64_t(n);
}

std::string ComfyEvaluation::text(const char* name, size_t longest) {
  const json* in = input(name);
  std::string out;
  if (in && in->is_array()) out = get<ComfyText>(name).text;
  else if (const json v = in ? *in : usual(name); v.is_string()) out = v.get<std::string>();
  else refuse(std::string(name) + " must be text, got " + shown(v));
  if (out.size() > longest) refuse(std::string(name) + " is too long: at most " + std::to_string(longest) + " bytes");
  return out;
}

Tensor ComfyEvaluation::sent_picture(const std::string& bytes) {
  return named([&] { return taken(picture_of("image", bytes, c.limits.input_pixels)); });
}

ComfyImage ComfyEvaluation::then(const ComfyImage& image, std::function<Tensor(const Tensor&)> f) {
  if (image.known.defined()) return {named([&] { return taken(f(image.known)); }), {}};
  if (!image.behind) return {{}, std::move(f)};
  return {{}, [first = image.behind, f = std::move(f)](const Tensor& t) { return f(first(t)); }};
}

Tensor ComfyEvaluation::known(const char* name) {
  ComfyImage image = get<ComfyImage>(name);
  if (!image.known.defined())
    refuse(std::string(name) + ": pictures of this graph's sampler cannot be begun with again");
  return image.known;
}

const json* ComfyEvaluation::input(const char* name) const {
  const json& node = graph_[id()];
  const auto inputs = node.find("inputs");
  if (inputs == node.end()) return nullptr;
  const auto at = inputs->find(name);
  return at == inputs->end() || at->is_null() ? nullptr : &*at;
}

json ComfyEvaluation::usual(const char* name) const {
  for (auto& i : find_node(kind())->inputs)
    if (i.name == name) return i.usual;
  return {};
}

ComfyValue& ComfyEvaluation::linked(const json& link, const char* name) {
  if (link.size() != 2 || !link[0].is_string() || !link[1].is_number_unsigned())
    refuse(std::string(name) + " must be a link, [node, output]");
  const std::string from = link[0];
  const auto place = link[1].get<size_t>();
  if (!graph_.contains(from))
    refuse(std::string(name) + " comes from node " + printable(from.substr(0, 40)) + ", which is not there");
  auto& values = values_of(from);
  if (place >= values.size()) refuse(std::string(name) + " comes from an output that the node has not");
  return values[place];
}

std::vector<ComfyValue>& ComfyEvaluation::values_of(const std::string& id) {
  if (auto at = values_.find(id); at != values_.end()) return at->second;
  if (std::find(stack_.begin(), stack_.end(), id) != stack_.end())
    throw ComfyError("the graph has a circle, through node " + printable(id.substr(0, 40)), id,
                     graph_[id]["class_type"]);
  if (stack_.size() >= kMostDepth)
    throw ComfyError("more than " + std::to_string(kMostDepth) + " nodes behind each other");
  stack_.push_back(id);
  auto made = find_node(graph_[id]["class_type"])->make(*this);
  stack_.pop_back();
  return values_[id] = std::move(made);
}

ComfyJob comfy_job(const Context& c, const json& graph, const ComfyImages& images) {
  ComfyEvaluation e(c, graph, images);
  e.run();
  return std::move(e.out);
}

json comfy_object_info(const Context& c) {
  json models = json::array();
  for (auto& m : c.jobs.shelf().models())
    if (!m.makes_clips()) models.push_back(m.title);
  const json schedulers{"normal", "karras", "exponential", "sgm_uniform", "simple", "beta"};
  json out = json::object();
  for (auto& n : comfy_nodes()) {
    json required = json::object(), optional = json::object(), names = json::array();
    for (auto& i : n.inputs) {
      json spec = json::array();
      if (i.type == "models") spec.push_back(models);
      else if (i.type == "vaes") spec.push_back(c.jobs.shelf().vae_names());
      else if (i.type == "loras") spec.push_back(c.jobs.shelf().lora_names());
      else if (i.type == "samplers") spec.push_back(c.jobs.samplers().names);
      else if (i.type == "schedulers") spec.push_back(schedulers);
      else spec.push_back(i.type);
      if (!i.usual.is_null()) spec.push_back(json{{"default", i.usual}});
      (i.optional ? optional : required)[i.name] = std::move(spec);
    }
    for (auto& o : n.outputs) names.push_back(o);
    out[n.name] = {{"input", {{"required", required}, {"optional", optional}}},
                   {"output", names},
                   {"output_name", names},
                   {"output_is_list", json(std::vector<bool>(n.outputs.size(), false))},
                   {"name", n.name},
                   {"display_name", n.name},
                   {"description", ""},
                   {"category", "scaffolding"},
                   {"output_node", n.outputs.empty()}};
  }
  return out;
}

}  // namespace sf::server
