#include "benchmarks/bench.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/recurrent/recurrent.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf::bench {

namespace {

constexpr int64_t kSteps = 100, kBatch = 32, kWidth = 256, kHidden = 256;

// Gates of both products, for each step; gradients take two products more for each.
double work(int64_t gates, bool gradients) {
  return (gradients ? 3 : 1) * 2.0 * double(kSteps * kBatch * gates * kHidden * (kWidth + kHidden));
}

// As small as a layer's are, so that no gate is at its end.
Tensor weights(const Shape& size, bool gradients) {
  return (random(size, kFloat32) * (1. / 32)).requires_grad_(gradients);
}

struct Layer {
  Tensor x, w_ih, w_hh, b_ih, b_hh, state;
  Layer(int64_t gates, bool gradients)
      : x(random({kSteps * kBatch, kWidth}, kFloat32, gradients)),
        w_ih(weights({gates * kHidden, kWidth}, gradients)),
        w_hh(weights({gates * kHidden, kHidden}, gradients)),
        b_ih(weights({gates * kHidden}, gradients)),
        b_hh(weights({gates * kHidden}, gradients)),
        state(zeros({kBatch, kHidden})) {}
  Tensor lstm() const { return std::get<0>(lstm_sequence(linear(x, w_ih, b_ih + b_hh), w_hh, state, state)); }
  Tensor gru() const { return std::get<0>(gru_sequence(linear(x, w_ih, b_ih), w_hh, b_hh, state)); }
};

}  // namespace

static Rows recurrent_rows([](std::vector<Row>& rows) {
  for (bool gradients : {false, true}) {
    const std::string how = gradients ? ", with gradients f32" : " f32";
    rows.push_back({"lstm [100,32,256]-256" + how, Roof::F32, work(4, gradients), speedup(1.43), [=] {
                      return [layer = Layer(4, gradients), gradients] {
                        autograd::GradMode mode(gradients);
                        Tensor y = layer.lstm();
                        if (gradients) sum(y).backward();
                        keep(y);
                      };
                    }});
    rows.push_back({"gru [100,32,256]-256" + how, Roof::F32, work(3, gradients), speedup(1.43), [=] {
                      return [layer = Layer(3, gradients), gradients] {
                        autograd::GradMode mode(gradients);
                        Tensor y = layer.gru();
                        if (gradients) sum(y).backward();
                        keep(y);
                      };
                    }});
  }
});

}  // namespace sf::bench
