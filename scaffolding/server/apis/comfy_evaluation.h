// The values of a graph of ComfyUI's nodes, and the kinds of nodes that make them (comfy_nodes.cpp). One thread at a
// time for a ComfyEvaluation.
#pragma once
#include <variant>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/server/apis/comfy_graph.h"

namespace sf::server {

// What goes from node to node.
struct ComfyModel {
  std::string name;
  std::vector<diffusion::LoraTag> loras;
  double rescale = 0;
};
struct ComfyClip {
  std::string model;
  std::vector<diffusion::LoraTag> loras;
  int64_t skip = 0;
};
struct ComfyVae {
  std::string name;  // "": the model's own
};
struct ComfyText {
  std::string text;
};
struct ComfyCond {
  ComfyClip clip;
  std::string text;
};
struct ComfyLatent {
  int64_t width = 0, height = 0, batch = 1;
  Tensor image, mask;  // none: it is empty, or nothing is held
  ComfyVae vae;
  bool made = false;  // the sampler's
};
struct ComfyImage {
  Tensor known;                                 // none: of the job...
  std::function<Tensor(const Tensor&)> behind;  // ...and this is done to it
};
struct ComfyMask {
  Tensor values;
};
struct ComfySigmas {
  std::string schedule;
  int64_t steps = 20, start = 0;
  double denoise = 1;
};
struct ComfySampler {
  std::string name;
};
struct ComfyNoise {
  int64_t seed = 0;
};
struct ComfyGuider {
  ComfyModel model;
  ComfyCond positive, negative;
  double scale = 1;
};
using ComfyValue = std::variant<std::monostate, ComfyModel, ComfyClip, ComfyVae, ComfyText, ComfyCond, ComfyLatent,
                                ComfyImage, ComfyMask, ComfySigmas, ComfySampler, ComfyNoise, ComfyGuider>;
// Of each place of the variant, as ComfyUI calls it.
inline constexpr const char* kComfyTypes[] = {"nothing",      "MODEL",  "CLIP",  "VAE",  "STRING",
                                              "CONDITIONING", "LATENT", "IMAGE", "MASK", "SIGMAS",
                                              "SAMPLER",      "NOISE",  "GUIDER"};

class ComfyEvaluation;
struct ComfyInput {
  std::string name, type;  // of kComfyTypes, "INT", "FLOAT", or a list of names: "models", "vaes", "loras", "samplers"
  json usual = {};
  bool optional = false;
};
struct ComfyNode {
  std::string name;
  std::vector<ComfyInput> inputs;
  std::vector<std::string> outputs;  // of kComfyTypes; none: it is an output of the graph
  std::function<std::vector<ComfyValue>(ComfyEvaluation&)> make;
};
const std::vector<ComfyNode>& comfy_nodes();
const ComfyNode* find_node(const std::string& name);  // null where there is none of this name

// A graph's values, each made once, those that a node needs before it.
class ComfyEvaluation {
 public:
  ComfyEvaluation(const Context& c, const json& graph, const ComfyImages& images)
      : c(c), images(images), graph_(graph) {}

  const Context& c;
  const ComfyImages& images;
  ComfyJob out;

  void check();

  void run();

  // ---- of the node that is being made
  const std::string& id() const { return stack_.back(); }
  std::string kind() const { return graph_[id()]["class_type"]; }
  [[noreturn]] void refuse(const std::string& why) const;
  template <class T> T get(const char* name) {
    const json* in = input(name);
    if (!in) refuse(std::string(name) + " is needed");
    if (!in->is_array()) refuse(std::string(name) + " must come from another node");
    const ComfyValue& value = linked(*in, name);
    if (auto* v = std::get_if<T>(&value)) return *v;
    refuse(std::string(name) + " must be " + kComfyTypes[ComfyValue(T{}).index()] + ", got " +
           kComfyTypes[value.index()]);
  }
  double number(const char* name, double least, double most);
  int64_t whole(const char* name, int64_t least, int64_t most);
  std::string text(const char* name, size_t longest = 20'000);
  // What names a model: told in this node's words where it is not there.
  template <class F> auto named(F find) {
    try {
      return find();
    } catch (const ValueError& e) {
      refuse(e.what());
    }
  }
  Tensor taken(Tensor picture) {  // counts what the graph computes
    pixels_ += picture.size(1) * picture.size(2);
    if (pixels_ > 8 * c.limits.pixels)
      refuse("the graph's pictures have more than " + std::to_string(8 * c.limits.pixels) + " pixels together");
    return picture;
  }
  Tensor sent_picture(const std::string& bytes);
  // A picture that is known is changed now, the job's later.
  ComfyImage then(const ComfyImage& image, std::function<Tensor(const Tensor&)> f);
  Tensor known(const char* name);
  bool has(const char* name) { return input(name) != nullptr; }

 private:
  const json* input(const char* name) const;
  json usual(const char* name) const;
  ComfyValue& linked(const json& link, const char* name);
  std::vector<ComfyValue>& values_of(const std::string& id);
  const json& graph_;
  std::map<std::string, std::vector<ComfyValue>> values_;
  std::vector<std::string> stack_;  // nodes that are being made, each for the one before
  int64_t pixels_ = 0;
};

}  // namespace sf::server
