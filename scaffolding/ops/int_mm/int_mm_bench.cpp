#include "benchmarks/bench.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/int_mm/int_mm.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf::bench {

// The second operand is a weight [N, K] seen through t(), as quantised layers have it.
static Rows int_mm_rows([](std::vector<Row>& rows) {
  for (int64_t n : {1024, 2048, 4096}) {
    const double operations = 2.0 * double(n) * double(n) * double(n);
    rows.push_back({"int_mm " + std::to_string(n) + " int8", Roof::Int8, operations, {}, [=] {
                      auto bytes = [n] { return to_dtype(randint(-128, 128, {n, n}), kInt8); };
                      return [a = bytes(), w = bytes()] { keep(int_mm(a, w.t())); };
                    }});
  }
});

}  // namespace sf::bench
