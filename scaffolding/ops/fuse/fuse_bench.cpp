#include "benchmarks/bench.h"
#include "scaffolding/ops/fuse/fuse.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::bench {

static Tensor gate(const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& c) { return silu(x * a + b) * c; }

// 8 M elements; a, b and c are rows, so that x and the result are the traffic.
// The peers are torch.compile and eager PyTorch.
static Rows fuse_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16})
    for (bool fused : {true, false})
      rows.push_back({std::string(fused ? "fused" : "unfused") + " silu(x*a+b)*c [8192,1024] " + short_name(t),
                      Roof::Copy, 2.0 * 8192 * 1024 * double(size_of(t)), fused ? share(0.6) : Goal{}, [=] {
                        auto call = fuse(&gate);
                        return [=, x = random({8192, 1024}, t), a = random({1024}, t), b = random({1024}, t),
                                c = random({1024}, t),
                                y = Tensor()]() mutable { y = fused ? call(x, a, b, c) : gate(x, a, b, c); };
                      }});
});

}  // namespace sf::bench
