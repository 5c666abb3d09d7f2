// What an eager call costs beyond its arithmetic: one tiny op on the tape, and a training step of a small network.
#include "benchmarks/bench.h"
#include "scaffolding/autograd/engine.h"
#include "scaffolding/ops/adamw/adamw.h"
#include "scaffolding/ops/loss/loss.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"

namespace sf::bench {

namespace {

// 256-512-10 with relu, batch 32, AdamW: forward, loss, backward, step.
struct SmallNetwork {
  Tensor x = random({32, 256}, kFloat32), target = randint(0, 10, {32});
  Tensors params{(random({512, 256}, kFloat32) * 0.06).detach(), zeros({512}),
                 (random({10, 512}, kFloat32) * 0.04).detach(), zeros({10})},
      exp_avgs, exp_avg_sqs;
  int64_t steps = 0;

  SmallNetwork() {
    for (Tensor& p : params) {
      exp_avgs.push_back(zeros_like(p));
      exp_avg_sqs.push_back(zeros_like(p));
      p.requires_grad_();
    }
  }
  void step() {
    for (const Tensor& p : params) p.set_grad({});
    Tensor hidden = relu(linear(x, params[0], params[1]));
    cross_entropy(linear(hidden, params[2], params[3]), target).backward();
    Tensors grads;
    for (const Tensor& p : params) grads.push_back(p.grad());
    adamw_(params, grads, exp_avgs, exp_avg_sqs, ++steps);
  }
};

}  // namespace

static Rows overhead_rows([](std::vector<Row>& rows) {
  rows.push_back(
      {"add [2] with gradient, C++", Roof::None, 0, seconds(100e-9),
       [] { return [a = random({2}, kFloat32, true), b = random({2}, kFloat32, true)] { keep(add(a, b)); }; }, 1});
  // Counted as six FLOP per weight and sample, though nothing asks for the gradient of x.
  rows.push_back({"train step 256-512-10 batch 32", Roof::F32, 6.0 * 32 * (256 * 512 + 512 * 10), share(1 / 1.5),
                  [] { return [net = std::make_shared<SmallNetwork>()] { net->step(); }; }, 1});
});

}  // namespace sf::bench
