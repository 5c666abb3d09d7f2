#include "scaffolding/nn/joined.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/nn/activation.h"
#include "scaffolding/ops/ops.h"

namespace sf {
namespace {

std::string last_op(const nn::Sequential& net, const Tensor& x) { return net(x).impl()->grad_fn->name(); }

TEST(Joined, layers_on_the_cpu_are_called_one_by_one) {
  nn::Sequential net{nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 2)};
  EXPECT_EQ(last_op(net, randn({3, 4})), "linear");
}

TEST(CudaJoined, a_sequential_has_two_layers_as_one_op_unless_a_hook_wants_to_see_a_part) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  nn::Sequential net{nn::Tanh(), nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 2)};
  nn::to(net, {.device = Device("cuda")});
  Tensor x = randn({3, 4}).cuda();
  EXPECT_EQ(last_op(net, x), "mlp");
  Tensor joined = net(x).cpu();
  int seen = 0;
  for (size_t part : {1, 2, 3}) {
    const uint64_t hook =
        net[part].register_forward_hook([&](nn::Module&, const nn::Values&, const Value&) { return ++seen, Value(); });
    EXPECT_EQ(last_op(net, x), "linear") << part;
    EXPECT_LE(amax(abs(net(x).cpu() - joined)).item(), 1e-5) << part;
    net[part].remove_hook(hook);
  }
  EXPECT_EQ(seen, 6);
  // Libraries' epilogues have a GELU of few digits: in float32 it stays an op of its own.
  for (const char* approximate : {"none", "tanh"}) {
    nn::Sequential exact{nn::Linear(4, 8), nn::GELU(approximate), nn::Linear(8, 2)};
    nn::to(exact, {.device = Device("cuda")});
    EXPECT_EQ(last_op(exact, x), "linear") << approximate;
  }
}

}  // namespace
}  // namespace sf
