#include "benchmarks/bench.h"
#include "scaffolding/ops/grid_sample/grid_sample.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::bench {

static Rows grid_sample_rows([](std::vector<Row>& rows) {
  for (int64_t channels : {3, 64})
    for (const char* mode : {"bilinear", "bicubic"}) {
      int64_t side = channels == 3 ? 512 : 128;
      std::string size =
          "[2," + std::to_string(channels) + "," + std::to_string(side) + "," + std::to_string(side) + "]";
      rows.push_back({"grid_sample " + std::string(mode) + " " + size + " f32", Roof::None, 0, speedup(1), [=] {
                        return [x = random({2, channels, side, side}, kFloat32),
                                grid = random({2, side, side, 2}, kFloat32) * 0.5, mode,
                                y = Tensor()]() mutable { y = grid_sample(x, grid, mode, "zeros", false); };
                      }});
    }
  rows.push_back({"grid_sample bilinear [2,64,128,128] f32 fwd+bwd", Roof::None, 0, speedup(1), [] {
                    return [x = random({2, 64, 128, 128}, kFloat32, true),
                            grid = random({2, 128, 128, 2}, kFloat32, true)] { grid_sample(x, grid).sum().backward(); };
                  }});
});

}  // namespace sf::bench
