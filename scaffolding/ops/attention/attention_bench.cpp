// FLOP as usually counted: 4 h n^2 d forward (two products), 2.5 times that backward (five products). n4096x77 is a
// picture that attends to a prompt.
#include "benchmarks/bench.h"
#include "scaffolding/autograd/engine.h"
#include "scaffolding/ops/attention/attention.h"

namespace sf::bench {

static Rows attention_rows([](std::vector<Row>& rows) {
  struct Size {
    int64_t heads, length, dim, keys;
  };
  for (DType t : {kFloat32, kBFloat16})
    for (auto [h, n, d, keys] :
         {Size{8, 4096, 40, 4096}, {8, 4096, 64, 4096}, {10, 1024, 64, 1024}, {8, 4096, 64, 77}}) {
      std::string size = 'h' + std::to_string(h) + " n" + std::to_string(n);
      if (keys != n) size += 'x' + std::to_string(keys);
      size += " d" + std::to_string(d) + ' ' + short_name(t);
      double flop = 4.0 * double(h) * double(n) * double(keys) * double(d), goal = t == kFloat32 ? 0.70 : 0.45;
      auto tensors = [=](bool grad) {
        Shape of_keys{1, h, keys, d};
        return Tensors{random({1, h, n, d}, t, grad), random(of_keys, t, grad), random(of_keys, t, grad)};
      };
      rows.push_back({"attention " + size, roof_of(t), flop, share(goal), [=] {
                        return [in = tensors(false)] { keep(scaled_dot_product_attention(in[0], in[1], in[2])); };
                      }});
      rows.push_back({"attention backward " + size, roof_of(t), 2.5 * flop, share(goal / 2), [=] {
                        Tensors in = tensors(true);
                        return
                            [in, y = scaled_dot_product_attention(in[0], in[1], in[2]), dy = random({1, h, n, d}, t)] {
                              keep(autograd::grad({y}, in, {dy}, {.retain_graph = true})[0]);
                            };
                      }});
    }
});

}  // namespace sf::bench
