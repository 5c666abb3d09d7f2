// Our graphs given to the real cuDNN without a GPU: since 9.8 it plans for a device that is described.
// Calls of tests/python/backend/cuda/test_cudnn_on_paper.py.
#include <algorithm>
#include <chrono>
#include <string>

#include "scaffolding/ops/attention/attention_graph.h"
#include "scaffolding/ops/conv/conv_graph.h"

using namespace sf;
using namespace sf::cuda::cudnn;

namespace {

using Report = void (*)(const char* line);
using What = Graph::Convolution;

ConvolutionGraph convolution(DType dtype, Dims x, int64_t out, Dims kernel, int64_t padding, int64_t stride = 1,
                             int64_t groups = 1, What what = What::Forward) {
  ConvolutionGraph c;
  size_t dims = kernel.size();
  c.what = what, c.dtype = dtype, c.x = x;
  c.w = {out, x[1] / groups}, c.y = {x[0], out};
  c.window = {Dims(dims, padding), Dims(dims, stride), Dims(dims, 1)};
  for (size_t i = 0; i < dims; ++i) {
    c.w.push_back(kernel[i]);
    c.y.push_back((x[i + 2] + 2 * padding - kernel[i]) / stride + 1);
  }
  for (int64_t& a : c.alignment) a = 16;
  return c;
}

// "<name>: engine 3, 5 knobs, workspace 131 bytes", or what cuDNN says.
void plan(const std::string& name, Graph built, const Target& target, const Wishes& wishes, Report report) {
  std::string line = name + ": ";
  try {
    built.finalize(target);
    auto graph = std::make_shared<const Graph>(std::move(built));
    auto all = proposals(*graph, target, wishes);
    std::string refusal = "no proposal";
    for (Descriptor& config : all) {
      try {
        Plan first(graph, target, std::move(config));
        Choice choice = first.choice();
        Plan again(graph, target, choice);  // as from the file
        line += "engine " + std::to_string(choice.engine) + ", " + std::to_string(choice.knobs.size()) +
                " knobs, workspace " + std::to_string(first.workspace()) + " bytes";
        if (again.workspace() != first.workspace() || again.choice().knobs != choice.knobs ||
            again.choice().engine != choice.engine)
          line += ", DIFFERENT AGAIN";
        if (const std::string text = first.text(); !text.empty()) {
          Plan of_text(graph, target, text);
          line += ", text of " + std::to_string(text.size()) + " bytes";
          if (of_text.workspace() != first.workspace()) line += ", DIFFERENT AGAIN";
        }
        return report(line.c_str());
      } catch (const Failure& f) {
        refusal = f.status == 5001 ? "compiled, and no driver to load it" : f.what();
        if (f.status == 5001) break;
      }
    }
    line += refusal;
  } catch (const Failure& f) {
    line += f.what();
  }
  report(line.c_str());
}

constexpr int kRivals = 8;  // as many as a benchmark times (cudnn_plans.cudnn.cpp)

// "rivals, <name>: 8 plans of 21 proposals, workspace 0 to 131 bytes, 12 ms": those that a benchmark would time, the
// first and the most of their workspaces, and how long they took to make. Of what cuDNN compiles itself and no driver
// is here to load, the workspace is not told.
void rivals(const std::string& name, Graph built, const Target& target, Report report) {
  try {
    built.finalize(target);
    auto graph = std::make_shared<const Graph>(std::move(built));
    const auto start = std::chrono::steady_clock::now();
    auto all = proposals(*graph, target, {});
    const size_t proposed = all.size();
    int plans = 0;
    int64_t first = -1, most = -1;
    for (Descriptor& config : all) {
      try {
        const Plan plan(graph, target, std::move(config));
        most = std::max(most, int64_t(plan.workspace()));
        if (plans == 0) first = int64_t(plan.workspace());
      } catch (const Failure& f) {
        if (f.status != 5001) continue;
      }
      if (++plans == kRivals) break;
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    const std::string bytes = most < 0 ? "unknown" : std::to_string(first) + " to " + std::to_string(most) + " bytes";
    report(("rivals, " + name + ": " + std::to_string(plans) + " plans of " + std::to_string(proposed) +
            " proposals, workspace " + bytes + ", " + std::to_string(int64_t(took.count())) + " ms")
               .c_str());
  } catch (const Failure& f) {
    report(("rivals, " + name + ": " + f.what()).c_str());
  }
}

void convolutions(const Target& target, bool compile, Report report) {
  for (DType t : {kBFloat16, kFloat16, kFloat32})
    for (bool exact : {false, true}) {
      if (exact && t != kFloat32) continue;
      auto name = [&](const char* what) {
        return std::string(what) + " " + std::string(sf::name(t)) + (exact ? " exact" : "");
      };
      auto ask = [&](const char* what, const ConvolutionGraph& c, Wishes wishes = {}) {
        wishes.exact_float32 = exact;
        plan(name(what), graph_of(c), target, wishes, report);
      };
      ConvolutionGraph c = convolution(t, {2, 320, 64, 64}, 640, {3, 3}, 1);
      ask("3x3", c);
      c.bias = t;
      ask("3x3 + bias", c);
      c.residual = 16;
      ask("3x3 + residual + bias", c);
      c.act = Activation::Relu;
      ask("relu(3x3 + residual + bias)", c);
      c.act = Activation::Silu;
      if (compile && !exact) ask("silu(3x3 + residual + bias)", c);
      ConvolutionGraph in = convolution(t, {2, 4, 64, 64}, 320, {3, 3}, 1);
      in.bias = t;
      ask("conv_in of 4 channels", in);
      in.x[1] = in.w[1] = 3;
      ask("conv_in of 3 channels", in);
      for (int64_t& a : in.alignment) a = int64_t(size_of(t));
      ask("conv_in of 3 channels, unaligned", in);
      ConvolutionGraph out = convolution(t, {2, 320, 64, 64}, 4, {3, 3}, 1);
      out.bias = t;
      ask("conv_out of 4 channels", out);
      ConvolutionGraph one = convolution(t, {2, 320, 64, 64}, 640, {1, 1}, 0);
      one.bias = t;
      ask("1x1 + bias", one);
      ConvolutionGraph half = convolution(t, {2, 320, 64, 64}, 320, {3, 3}, 1, 2);
      half.bias = t;
      ask("stride 2", half);
      ask("one dimension", convolution(t, {2, 64, 1, 128}, 64, {1, 3}, 0));
      ask("three dimensions", convolution(t, {1, 64, 8, 32, 32}, 64, {3, 3, 3}, 1));
      ask("5 to 7 channels", convolution(t, {2, 5, 9, 11}, 7, {3, 3}, 1));
      for (What what : {What::Data, What::Filter}) {
        std::string gradient = what == What::Data ? "data gradient" : "filter gradient";
        ask((gradient + ", 3x3").c_str(), convolution(t, {2, 320, 64, 64}, 640, {3, 3}, 1, 1, 1, what));
        ask((gradient + ", 3x3, deterministic").c_str(), convolution(t, {2, 320, 64, 64}, 640, {3, 3}, 1, 1, 1, what),
            {.deterministic = true});
        ask((gradient + ", stride 2").c_str(), convolution(t, {2, 320, 64, 64}, 320, {3, 3}, 1, 2, 1, what));
        ask((gradient + ", three dimensions").c_str(),
            convolution(t, {1, 64, 8, 32, 32}, 64, {3, 3, 3}, 1, 1, 1, what));
        ask((gradient + ", 4 channels").c_str(), convolution(t, {2, 4, 64, 64}, 320, {3, 3}, 1, 1, 1, what));
      }
      ask("2 groups", convolution(t, {2, 320, 64, 64}, 320, {3, 3}, 1, 1, 2));
      ask("2 groups of 3 channels", convolution(t, {2, 6, 5, 7}, 4, {3, 3}, 1, 2, 2));
      if (compile) ask("depthwise", convolution(t, {2, 320, 64, 64}, 320, {3, 3}, 1, 1, 320));
    }
}

// Heads side by side in a row, as projections leave them; in_one: queries, keys and values side by side in a row, as
// one projection leaves the three.
AttentionGraph attention(DType t, int64_t heads, int64_t key_heads, int64_t queries, int64_t keys, int64_t width,
                         int64_t value_width, bool causal = false, bool in_one = false) {
  auto rows = [](int64_t n, int64_t length, int64_t w) { return Dims{length * n * w, w, n * w, 1}; };
  if (in_one) {
    const Dims row{3 * queries * heads * width, width, 3 * heads * width, 1};
    return {t,      2,      heads, heads, queries, queries, width, width, row, row, row, rows(heads, queries, width),
            causal, 0.125f, false};
  }
  return {t,
          2,
          heads,
          key_heads,
          queries,
          keys,
          width,
          value_width,
          rows(heads, queries, width),
          rows(key_heads, keys, width),
          rows(key_heads, keys, value_width),
          rows(heads, queries, value_width),
          causal,
          0.125f,
          false};
}

// What the UNets of Stable Diffusion 2.1 (64x64) and XL (128x128), two samples each, and the autoencoder's decoder
// (512x512, 1024x1024) ask for in bfloat16, as the layers give it: first convolutions of residual blocks with a bias,
// second ones with a residual too, the shortcuts, the resamplers, and attention.
struct Network {
  const char* name;
  const Target& target;
  bool compile;
  Report report;

  void convolve(const std::string& what, ConvolutionGraph c, bool residual = false) const {
    c.bias = kBFloat16;
    if (residual) c.residual = 16;
    std::string full = std::string("network ") + name + ", " + what + (residual ? " + residual" : "");
    for (size_t i = 0; i < c.x.size(); ++i) full += (i == 0 ? " [" : ", ") + std::to_string(c.x[i]);
    full += "] to " + std::to_string(c.w[0]);
    plan(full, graph_of(c), target, {}, report);
    if (compile) rivals(full, graph_of(c), target, report);
  }
  void block(int64_t n, int64_t in, int64_t out, int64_t pixels) const {
    convolve("3x3", convolution(kBFloat16, {n, in, pixels, pixels}, out, {3, 3}, 1));
    convolve("3x3", convolution(kBFloat16, {n, out, pixels, pixels}, out, {3, 3}, 1), true);
    if (in != out) convolve("1x1", convolution(kBFloat16, {n, in, pixels, pixels}, out, {1, 1}, 0));
  }
  void attend(int64_t heads, int64_t tokens) const {
    if (!compile) return;
    auto of = [&](const char* what, const AttentionGraph& a) {
      rivals(std::string("network ") + name + ", " + what + " of " + std::to_string(heads) + " heads, " +
                 std::to_string(tokens),
             graph_of(a), target, report);
    };
    of("self-attention", attention(kBFloat16, heads, heads, tokens, tokens, 64, 64, false, true));
    of("cross-attention", attention(kBFloat16, heads, heads, tokens, 77, 64, 64));
  }
};

struct Level {
  int64_t pixels, out;
  std::vector<int64_t> in;
  bool down, attends;
};
void unet(const Network& net, const std::vector<Level>& levels) {
  for (const Level& l : levels) {
    for (int64_t in : l.in) net.block(2, in, l.out, l.pixels);
    if (l.down)
      net.convolve("3x3, stride 2", convolution(kBFloat16, {2, l.out, l.pixels, l.pixels}, l.out, {3, 3}, 1, 2));
    if (l.attends) net.attend(l.out / 64, l.pixels * l.pixels);
  }
  const int64_t pixels = levels[0].pixels;
  net.convolve("conv_in", convolution(kBFloat16, {2, 4, pixels, pixels}, 320, {3, 3}, 1));
  net.convolve("conv_out", convolution(kBFloat16, {2, 320, pixels, pixels}, 4, {3, 3}, 1));
}
void decoder(const Network& net, int64_t latents) {
  net.convolve("conv_in", convolution(kBFloat16, {1, 4, latents, latents}, 512, {3, 3}, 1));
  for (int64_t times : {1, 2, 4}) net.block(1, 512, 512, latents * times);
  net.block(1, 512, 256, 4 * latents), net.block(1, 256, 256, 4 * latents);
  net.convolve("3x3", convolution(kBFloat16, {1, 256, 8 * latents, 8 * latents}, 256, {3, 3}, 1));
  net.block(1, 256, 128, 8 * latents), net.block(1, 128, 128, 8 * latents);
  net.convolve("conv_out", convolution(kBFloat16, {1, 128, 8 * latents, 8 * latents}, 3, {3, 3}, 1));
}
void networks(const Target& target, bool compile, Report report) {
  unet({"SD 2.1", target, compile, report}, {{64, 320, {320, 640, 960}, true, true},
                                             {32, 640, {320, 640, 960, 1280, 1920}, true, true},
                                             {16, 1280, {640, 1280, 1920, 2560}, true, true},
                                             {8, 1280, {1280, 2560}, false, true}});
  unet({"SDXL", target, compile, report}, {{128, 320, {320, 640, 960}, true, false},
                                           {64, 640, {320, 640, 960, 1280, 1920}, true, true},
                                           {32, 1280, {640, 1280, 1920, 2560}, false, true}});
  decoder({"decoder 512", target, compile, report}, 64);
  decoder({"decoder 1024", target, compile, report}, 128);
}

void attentions(const Target& target, Report report) {
  struct Case {
    const char* name;
    AttentionGraph a;
  };
  for (const Case& c : {Case{"self-attention d64", attention(kBFloat16, 10, 10, 4096, 4096, 64, 64)},
                        Case{"d40 float16", attention(kFloat16, 8, 8, 4096, 4096, 40, 40)},
                        Case{"cross-attention 77", attention(kBFloat16, 10, 10, 1024, 77, 64, 64)},
                        Case{"causal 77", attention(kBFloat16, 12, 12, 77, 77, 64, 64, true)},
                        Case{"grouped", attention(kBFloat16, 12, 4, 256, 256, 64, 64, true)},
                        Case{"d128", attention(kBFloat16, 24, 24, 4096, 4096, 128, 128)},
                        Case{"d40 of 4096", attention(kBFloat16, 8, 8, 4096, 4096, 40, 40)},
                        Case{"d80 of 1024", attention(kBFloat16, 8, 8, 1024, 1024, 80, 80)},
                        Case{"d80 over 77", attention(kBFloat16, 8, 8, 1024, 77, 80, 80)},
                        Case{"d160 of 256", attention(kBFloat16, 8, 8, 256, 256, 160, 160)},
                        Case{"d64 in one of 4096", attention(kBFloat16, 5, 5, 4096, 4096, 64, 64, false, true)},
                        Case{"d64 in one of 64", attention(kBFloat16, 20, 20, 64, 64, 64, 64, false, true)},
                        Case{"d64 in one of 1024", attention(kBFloat16, 20, 20, 1024, 1024, 64, 64, false, true)},
                        Case{"d160", attention(kFloat16, 8, 8, 64, 77, 160, 160)},
                        Case{"d8, 5 by 7, values narrower", attention(kBFloat16, 3, 3, 5, 7, 64, 8)}}) {
    AttentionGraph a = c.a;
    plan(std::string("attention, ") + c.name, graph_of(a), target, {}, report);
    a.lse = true;
    plan(std::string("attention for training, ") + c.name, graph_of(a), target, {}, report);
    AttentionGradientGraph g{a, a.y, a.q, a.k, a.v, true};
    plan(std::string("attention gradients, ") + c.name, graph_of(g), target, {}, report);
    g.accumulate = false;
    plan(std::string("attention gradients, deterministic, ") + c.name, graph_of(g), target, {.deterministic = true},
         report);
  }
}

}  // namespace

// `properties`: cuDNN's description of a GPU, JSON. compile: also what cuDNN has to compile, which takes half a second
// a graph. One line per graph; a first line that begins with "missing" where there is no such library.
extern "C" __attribute__((visibility("default"))) void sf_cudnn_on_paper(const char* properties, bool compile,
                                                                         Report report) {
  if (!functions()) return report("missing");
  try {
    Descriptor gpu(Kind::DeviceProperties);
    gpu.set(Attribute::PropertiesJson, Type::Char, int64_t(std::char_traits<char>::length(properties)), properties);
    gpu.finalize("description of a GPU");
    Target target{nullptr, &gpu};
    report(("cuDNN " + std::to_string(api().version())).c_str());
    convolutions(target, compile, report);
    networks(target, compile, report);
    if (compile) attentions(target, report);
  } catch (const Error& e) {
    report((std::string("failed: ") + e.what()).c_str());
  }
}
