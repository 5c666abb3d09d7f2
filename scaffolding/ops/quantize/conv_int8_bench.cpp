#include "benchmarks/bench.h"
#include "scaffolding/ops/quantize/conv_int8.h"

namespace sf::bench {

// The layers of conv_bench.cpp, in int8 with quantised samples, at the rate of integers.
static Rows conv_int8_rows([](std::vector<Row>& rows) {
  struct Layer {
    int64_t channels, pixels;
  };
  for (auto [c, p] : {Layer{320, 64}, {640, 32}, {1280, 16}, {128, 256}}) {
    const double flop = 2.0 * 9 * double(c) * double(c) * double(p) * double(p);
    rows.push_back({"conv2d_int8 " + std::to_string(c) + "@" + std::to_string(p), Roof::Int8, flop,
                    share_of_int8(0.7, 0.4), [c = c, p = p] {
                      auto [w, scale] = quantize_conv_int8(random({c, c, 3, 3}, kFloat32));
                      return [=, w = w, scale = scale, x = random_channels_last({1, c, p, p}, kFloat32)] {
                        keep(conv2d_int8(x, w, scale, {}, {1}, {1}));
                      };
                    }});
  }
});

}  // namespace sf::bench
