// The 3x3 layers of a latent-diffusion UNet and of its decoder, batch 1, channels-last in and out.
#include "benchmarks/bench.h"
#include "scaffolding/autograd/engine.h"
#include "scaffolding/ops/conv/conv.h"

namespace sf::bench {

static Rows conv_rows([](std::vector<Row>& rows) {
  struct Layer {
    int64_t channels, pixels;
  };
  for (DType t : {kFloat32, kBFloat16})
    for (auto [c, p] : {Layer{320, 64}, {640, 32}, {1280, 16}, {128, 256}}) {
      std::string size = std::to_string(c) + "@" + std::to_string(p) + " " + short_name(t);
      double flop = 2.0 * 9 * double(c) * double(c) * double(p) * double(p);
      Goal goal = t == kFloat32 ? speedup(2) : share(0.92);
      auto tensors = [=](bool grad) {
        return Tensors{random_channels_last({1, c, p, p}, t, grad), random_channels_last({c, c, 3, 3}, t, grad),
                       random({c}, t, grad)};
      };
      rows.push_back({"conv " + size, roof_of(t), flop, goal,
                      [=] { return [in = tensors(false)] { keep(conv2d(in[0], in[1], in[2], {1}, 1)); }; }});
      rows.push_back({"conv forward+backward " + size, roof_of(t), 3 * flop, goal, [=] {
                        return [in = tensors(true), dy = random_channels_last({1, c, p, p}, t)] {
                          keep(autograd::grad({conv2d(in[0], in[1], in[2], {1}, 1)}, in, {dy})[0]);
                        };
                      }});
    }
});

}  // namespace sf::bench
