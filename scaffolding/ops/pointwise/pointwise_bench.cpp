#include "benchmarks/bench.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::bench {

static Rows pointwise_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16})
    rows.push_back(
        {"gelu [8192,2560] " + short_name(t), Roof::Copy, 2.0 * 8192 * 2560 * double(size_of(t)), share(0.75), [=] {
           return [x = random({8192, 2560}, t), y = Tensor()]() mutable { y = gelu(x); };
         }});
  // A contiguous tensor and a channels-last one: 2.6 MB or half of it, where one of them is read across its rows.
  for (DType t : {kFloat32, kBFloat16}) {
    const double bytes = 8 * 320 * 16 * 16 * double(size_of(t));
    rows.push_back({"add of two layouts [8,320,16,16] " + short_name(t), Roof::Copy, 3 * bytes, share(0.5), [=] {
                      return [x = random({8, 320, 16, 16}, t), y = random_channels_last({8, 320, 16, 16}, t),
                              z = Tensor()]() mutable { z = x + y; };
                    }});
    rows.push_back(
        {"channels-last to contiguous [8,320,16,16] " + short_name(t), Roof::Copy, 2 * bytes, share(0.5), [=] {
           return [x = random_channels_last({8, 320, 16, 16}, t), y = Tensor()]() mutable { y = x.contiguous(); };
         }});
  }
});

}  // namespace sf::bench
