// SF_TEST_DEVICE=cuda: the samples of every op and their gradients, captured in a graph with one draw of their numbers
// and replayed with another.
#include <dlfcn.h>

#include <array>
#include <cmath>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/core/env.h"
#include "scaffolding/ops/op_check.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::test {

namespace {

// Ops with samples that cannot be captured, and what their errors say.
struct Refusal {
  std::string_view op, says;
};
constexpr Refusal kNeedTheHost[] = {
    {"fractional_max_pool2d_with_indices",
     "fractional_max_pool2d_with_indices: placing windows by the values of _random_samples is not allowed while a CUDA "
     "graph is captured"},
    {"fractional_max_pool3d_with_indices",
     "fractional_max_pool3d_with_indices: placing windows by the values of _random_samples is not allowed while a CUDA "
     "graph is captured"},
    {"gru_sequence",
     "gru_sequence: reading batch_sizes (on the CPU it may be) is not allowed while a CUDA graph is captured"},
    {"lstm_sequence",
     "lstm_sequence: reading batch_sizes (on the CPU it may be) is not allowed while a CUDA graph is captured"},
    {"quantize_gguf", "copy: a copy from or to host memory is not allowed while a CUDA graph is captured"},
    {"rnn_sequence",
     "rnn_sequence: reading batch_sizes (on the CPU it may be) is not allowed while a CUDA graph is captured"},
    {"bincount", "bincount: a result whose shape depends on values is not allowed while a CUDA graph is captured"},
    // by a mask
    {"index", "nonzero: a result whose shape depends on values is not allowed while a CUDA graph is captured"},
    {"index_put", "nonzero: a result whose shape depends on values is not allowed while a CUDA graph is captured"},
    {"masked_select", "nonzero: a result whose shape depends on values is not allowed while a CUDA graph is captured"},
    {"nonzero", "nonzero: a result whose shape depends on values is not allowed while a CUDA graph is captured"},
    {"one_hot",
     "one_hot: reading the number of classes from the values (pass num_classes) is not allowed while a CUDA graph is "
     "captured"},
    {"repeat_interleave",
     "repeat_interleave: a result whose shape depends on the values of repeats is not allowed while a CUDA graph is "
     "captured"},
    {"unique", "nonzero: a result whose shape depends on values is not allowed while a CUDA graph is captured"},
    {"unique_consecutive",
     "nonzero: a result whose shape depends on values is not allowed while a CUDA graph is captured"},
};

struct CudnnScope {
  explicit CudnnScope(CudnnSettings s) { set_cudnn_settings(s); }
  ~CudnnScope() { set_cudnn_settings(before); }
  CudnnSettings before = cudnn_settings();
};

// What checks the values of its input before it computes; captured, it checks them afterwards.
bool waits(std::string_view op) {
  constexpr std::string_view kWait[] = {
      "bernoulli", "bernoulli_",  "binary_cross_entropy", "embedding_bag", "gaussian_nll_loss",
      "histc",     "multinomial", "nanquantile",          "normal",        "quantile"};
  return std::find(std::begin(kWait), std::end(kWait), op) != std::end(kWait);
}

// Calls of CUDA that take a GPU long and that no op may need again and again: questions after properties and memory,
// and, where the cache keeps blocks, waits and allocations (without it each block that is given back waits). Zeros on
// a GPU, where nobody counts.
std::array<int64_t, 4> slow_calls() {
  static const auto count = reinterpret_cast<int64_t (*)(int)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_count"));
  if (!count) return {};
  const bool keeps = env::flag("SF_CUDA_CACHE");
  return {keeps ? count(0) : 0, count(7), count(8), keeps ? count(9) : 0};
}

// A call with tensors on the device that stay where they are, while their values are those of one draw or another.
class Call {
 public:
  Call(const OpEntry& op, std::vector<Value> args, const std::vector<Value>& drawn_again, bool gradients, Device device)
      : op_(op) {
    auto copies = [&](const std::vector<Value>& values) {
      Tensors all;
      map_tensors(values, [&](const Tensor& x) { return all.emplace_back(x.to(device)); });
      return all;
    };
    draws_[0].inputs = copies(args);
    draws_[1].inputs = copies(drawn_again);
    args_ = map_tensors(args, [&](const Tensor& x) {
      Tensor y = x.to(device).detach();
      if (gradients && is_real(y)) leaves_.push_back(y = leaf_of(y));
      return inputs_.emplace_back(y);
    });
    for (size_t i = 0; inputs_.empty() && i < op.args.size(); ++i)  // a factory stays on the CPU unless told otherwise
      if (op.args[i].kind == ArgKind::Device) args_[i] = device, is_factory_ = true;
  }

  bool draws_differ() const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (draws_[0].inputs[i].cpu().to_vector() != draws_[1].inputs[i].cpu().to_vector()) return true;
    return false;
  }
  bool is_factory() const { return is_factory_; }
  bool is_there() const { return !inputs_.empty() || is_factory_; }

  void write(int draw) {
    autograd::NoGrad guard;
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].copy_(draws_[draw].inputs[i]);
    for (size_t i = 0; i < seeds_.size(); ++i) seeds_[i].copy_(draws_[draw].seeds[i]);
  }

  // The op, and where it has them its gradients.
  void run() {
    results.clear();
    Tensors ends;
    for (auto& y : outputs(op_.call(args_))) {
      if (!y) continue;
      results.push_back(y.detach());
      if (is_real(y) && y.requires_grad()) ends.push_back(y);
    }
    if (ends.empty() || leaves_.empty()) return;
    if (seeds_.empty()) make_seeds(ends);
    for (auto& g : autograd::grad(ends, leaves_, seeds_, {}, true))
      if (g) results.push_back(g.detach());
  }

  // What a replay does not write stays wrong. Not what is an input as well: views, and gradients that are the seed.
  void spoil() {
    for (Tensor y : results) {
      if (is_of(inputs_, y) || is_of(seeds_, y) || y.numel() == 0) continue;
      for (int64_t d = 0; d < y.ndim(); ++d)  // of an expanded one what is in memory
        if (y.strides()[d] == 0) y = y.slice(d, 0, 1);
      if (is_floating(y.dtype())) y.fill_(std::nan(""));
      else if (y.dtype() == kBool) y.copy_(logical_not(y));
      else y.fill_(77);
    }
  }

  Tensors on_host() const {
    Tensors all;
    for (auto& y : results) all.push_back(y.cpu());
    return all;
  }

  Tensors results;

 private:
  struct Draw {
    Tensors inputs, seeds;
  };

  static bool is_of(const Tensors& some, const Tensor& y) {
    return std::any_of(some.begin(), some.end(), [&](auto& x) { return x.storage().get() == y.storage().get(); });
  }

  void make_seeds(const Tensors& ends) {
    for (auto& c : cotangents(ends)) {
      const Tensor& y = ends[seeds_.size()];
      draws_[0].seeds.push_back(to_dtype_keeping_layout(c * -0.5, y.dtype()).to(y.device()));
      draws_[1].seeds.push_back(to_dtype_keeping_layout(c, y.dtype()).to(y.device()));
      seeds_.push_back(draws_[1].seeds.back().clone());
    }
  }

  const OpEntry& op_;
  std::vector<Value> args_;
  Tensors inputs_, leaves_, seeds_;
  Draw draws_[2];
  bool is_factory_ = false;
};

}  // namespace

void check_captured(const OpEntry& op, OpTest& t) {
  // two replays give the same bits, and tolerances are those of float32
  CudnnScope settings({.deterministic = true, .allow_tf32 = false});
  Device device(env::text("SF_TEST_DEVICE"));
  std::string why, missing;
  if (!backend_available(device.type, &why))
    GTEST_SKIP() << "unproven here: " << device.str() << " is not available: " << why;
  auto drawn_again = t.drawn_again();
  ASSERT_EQ(drawn_again.size(), t.all.size());
  auto refusal =
      std::find_if(std::begin(kNeedTheHost), std::end(kNeedTheHost), [&](auto& r) { return r.op == op.name; });
  int replays = 0, refused = 0, changed = 0, factories = 0, different = 0;
  for (size_t i = 0; i < t.all.size(); ++i) {
    const Sample& sample = *t.all[i];
    auto args = complete(op, sample), again = complete(op, *drawn_again[i]);
    for (DType dtype : {kFloat32, kBFloat16}) {
      if (dtype == kBFloat16 && (!sample.low_precision || real_inputs(args).empty())) continue;
      auto rounded = [&](const Tensor& x) { return to_dtype_keeping_layout(x, dtype); };
      Call call(op, map_tensors(args, rounded), map_tensors(again, rounded), op.differentiable && sample.grad, device);
      if (!call.is_there()) continue;
      SCOPED_TRACE(describe(op, map_tensors(args, rounded)) + " captured on " + device.str());
      int times = op.is_random ? 2 : 1;
      std::vector<Tensors> want;
      std::unique_ptr<cuda::CudaGraph> graph;
      std::array<int64_t, 4> more{};
      try {
        manual_seed(kDefaultSeed);
        for (int time = 0; time < times; ++time) {
          call.write(1);
          call.run();
          want.push_back(call.on_host());
        }
        const auto slow = slow_calls();
        call.run();
        more = slow_calls();
        for (size_t k = 0; k < more.size(); ++k) more[k] -= slow[k];
        call.write(0);
        graph = cuda::capture([&] { call.run(); }, {.warmup = 0}, device);
      } catch (const NotSupported& error) {
        missing = error.what();
        continue;
      } catch (const RuntimeError& error) {
        if (refusal == std::end(kNeedTheHost) || !std::string_view(error.what()).starts_with(refusal->says)) throw;
        ++refused;
        continue;
      }
      ++replays;
      EXPECT_TRUE(more == (std::array<int64_t, 4>{}) || waits(op.name))
          << "a call that was made before waited " << more[0] << " times, asked for properties " << more[1]
          << " times, for memory " << more[2] << " times, and allocated " << more[3] << " times";
      factories += call.is_factory();
      different += call.draws_differ();
      Tensors first;
      manual_seed(kDefaultSeed);
      for (int time = 0; time < 2; ++time) {
        auto& expected = want[size_t(time % times)];
        ASSERT_EQ(call.results.size(), expected.size());
        call.spoil();
        call.write(1);
        graph->replay();
        Tensors got = call.on_host();
        double tol = op.is_random ? 0 : 4 * tolerance(dtype, reduction_length(args, expected));
        for (size_t k = 0; k < got.size(); ++k) {
          expect_close(got[k], expected[k], is_floating(got[k].dtype()) ? tol : 0,
                       "result of replay " + std::to_string(time));
          if (time == 0) continue;
          if (op.is_random) changed += got[k].to_vector() != first[k].to_vector();
          else expect_close(got[k], first[k], 0, "bits of the second replay");
        }
        first = got;
      }
    }
  }
  EXPECT_TRUE(refusal == std::end(kNeedTheHost) || refused > 0)
      << op.name << " is listed as one that cannot be captured, but was";
  // What has no kernel here may be the samples that differ.
  EXPECT_TRUE(different > 0 || factories == replays || refused > 0 || !missing.empty())
      << "every draw of the samples is the same: make some with randn or its like";
  EXPECT_TRUE(!op.is_random || replays == 0 || changed > 0) << "replays draw the same numbers again";
  if (!missing.empty()) GTEST_SKIP() << "unproven in part: " << missing;
  if (!replays && !refused)
    GTEST_SKIP() << "unproven here: no sample of " << op.name << " has a tensor on " << device.str();
}

}  // namespace sf::test
