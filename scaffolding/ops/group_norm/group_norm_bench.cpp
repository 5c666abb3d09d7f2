#include "benchmarks/bench.h"
#include "scaffolding/ops/group_norm/group_norm.h"

namespace sf::bench {

static Rows group_norm_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16})
    for (bool channels_last : {true, false}) {
      double bytes = 2.0 * 2 * 320 * 64 * 64 * double(size_of(t));
      rows.push_back({"group_norm_silu [2,320,64,64] " + std::string(channels_last ? "nhwc " : "nchw ") + short_name(t),
                      Roof::Copy, bytes, share(0.75), [=] {
                        Shape shape{2, 320, 64, 64};
                        return [x = channels_last ? random_channels_last(shape, t) : random(shape, t),
                                w = random({320}, t), b = random({320}, t),
                                y = Tensor()]() mutable { y = group_norm_silu(x, 32, w, b); };
                      }});
    }
});

}  // namespace sf::bench
