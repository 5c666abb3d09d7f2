#include <algorithm>
#include <cmath>
#include <queue>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/quantization/quantization_report.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/gguf.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf::diffusion {

namespace {

// From the widest to the narrowest.
constexpr const char* kLadder[] = {"Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K"};
constexpr int64_t kSampled = 1 << 16;  // numbers of a weight that its errors are measured on

struct Choice {
  std::string format;  // "": as it is
  int64_t bytes = 0;
  double error = 0;  // the square of the weight's relative error, times its numbers
};
struct Layer {
  std::string name;
  std::vector<Choice> choices;
  size_t at = 0;
};

double squared_error(const Tensor& weight, const GgufFormat& f) {
  const int64_t n = std::min(weight.numel(), kSampled) / f.block * f.block;
  const Tensor rows = to_dtype(weight.detach().reshape({weight.numel()}).narrow(0, 0, n), kFloat32).view({1, n});
  const std::string name(f.name);
  const Tensor off = dequantize_gguf(quantize_gguf(rows, name), name, {1, n}) - rows;
  const double whole = sum(rows * rows).item();
  return whole > 0 ? sum(off * off).item() / whole : 0;
}

std::vector<Choice> choices_of(const nn::PlannedLayer& p) {
  const Tensor weight = nn::dense_weight_of(*p.layer, {});
  std::vector<Choice> out{{"", int64_t(weight.nbytes()), 0}};
  for (const char* wanted : kLadder) {
    const int64_t row = weight.ndim() == 2 ? weight.size(1) : weight.numel();
    const GgufFormat* f = fitting_gguf_blocks(gguf_blocks("rules_for_budget", wanted), row);
    if (!f) continue;
    const int64_t bytes = weight.numel() / f->block * f->bytes;
    if (bytes >= out.back().bytes) continue;
    out.push_back({std::string(f->name), bytes, squared_error(weight, *f) * double(weight.numel())});
  }
  return out;
}

}  // namespace

std::vector<nn::QuantizeRule> rules_for_budget(nn::Module& model, int64_t budget, const nn::QuantizeOptions& options) {
  autograd::NoGrad off;
  std::vector<Layer> layers;
  int64_t bytes = 0, least = 0;
  for (auto& p : nn::named_parameters(model)) bytes += int64_t(p.tensor.nbytes());
  least = bytes;
  for (auto& p : nn::plan_quantization(model, "Q8_0", options)) {
    layers.push_back({p.name, choices_of(p)});
    least -= layers.back().choices.front().bytes - layers.back().choices.back().bytes;
  }
  SF_CHECK(least <= budget, "rules_for_budget: ", model.type(), " has at least ", least,
           " bytes in the narrowest formats", ", got a budget of ", budget,
           "; layers that stay wide by rules may be quantised too");
  // What the next narrower format of each layer loses for a byte, the least first.
  using Step = std::pair<double, size_t>;
  std::priority_queue<Step, std::vector<Step>, std::greater<>> steps;
  auto offer = [&](size_t i) {
    const Layer& l = layers[i];
    if (l.at + 1 >= l.choices.size()) return;
    const Choice &now = l.choices[l.at], &next = l.choices[l.at + 1];
    steps.emplace((next.error - now.error) / double(now.bytes - next.bytes), i);
  };
  for (size_t i = 0; i < layers.size(); ++i) offer(i);
  while (bytes > budget && !steps.empty()) {
    const size_t i = steps.top().second;
    steps.pop();
    Layer& l = layers[i];
    bytes -= l.choices[l.at].bytes - l.choices[l.at + 1].bytes;
    ++l.at;
    offer(i);
  }
  std::vector<nn::QuantizeRule> out;
  for (auto& l : layers) out.push_back({l.name, l.choices[l.at].format});
  return out;
}

}  // namespace sf::diffusion
