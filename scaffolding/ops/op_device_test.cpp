// SF_TEST_DEVICE=cuda: the samples of every op, also of those made of others, computed there and on the CPU.
#include <dlfcn.h>

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/op_check.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {

namespace {

const OpEntry* g_op;  // what `call_there` calls: an OpEntry's call is a plain function
Device g_device;

Tensor there(const Tensor& x) { return x.to(g_device); }

Value call_there(std::span<const Value> args) {
  Value y = g_op->call(map_tensors({args.begin(), args.end()}, there));
  return map_tensors({y}, [](const Tensor& t) {
    EXPECT_TRUE(t.device() == g_device) << "a result is on " << t.device().str();
    return t.to(Device::CPU);
  })[0];
}

// "" for the default, then every provider that comes after another.
std::vector<std::string> labels_there(const OpEntry& op) {
  std::vector<std::string> labels{""};
  for (auto* table : op.tables)
    for (int i = 1; i < table->count(g_device.type); ++i)
      if (auto l = provider_label(table->entry(g_device.type, i));
          std::find(labels.begin(), labels.end(), l) == labels.end())
        labels.push_back(l);
  return labels;
}

void compare(const Evaluation& e, const Evaluation& here, const Evaluation& exact, double tol) {
  ASSERT_EQ(e.all.size(), here.all.size());
  for (size_t i = 0; i < e.all.size(); ++i) {
    if (!e.all[i]) continue;
    EXPECT_EQ(name(e.all[i].dtype()), name(here.all[i].dtype()));
    if (!is_floating(e.all[i].dtype())) expect_close(e.all[i], here.all[i], 0, "whole numbers");
  }
  ASSERT_EQ(e.values.size(), exact.values.size());
  for (size_t i = 0; i < e.values.size(); ++i) expect_close(e.values[i], exact.values[i], tol, "value");
  ASSERT_EQ(e.gradients.size(), exact.gradients.size());
  for (size_t i = 0; i < e.gradients.size(); ++i) {
    ASSERT_EQ(e.gradients[i].defined(), exact.gradients[i].defined());
    if (e.gradients[i])
      expect_close(e.gradients[i], exact.gradients[i], 4 * tol, "gradient of input " + std::to_string(i));
  }
}

// What may be away where float8 was multiplied by float8 on the tensor cores of a GPU: Hopper's keep 13 bits of
// mantissa of sums of 32 products (DeepSeek-V3 Technical Report, 3.3.2; docs/internals/cuda.md). The emulator sums
// exactly.
double float8_tolerance() {
  const bool emulated = dlsym(RTLD_DEFAULT, "sf_cuda_emulator_queue");
  return g_device.is_cuda() && !emulated ? 0x1p-13 : 0;
}

}  // namespace

void check_device(const OpEntry& op, const OpTest& t) {
  set_cudnn_settings({.allow_tf32 = false});  // tolerances are those of float32
  g_op = &op;
  g_device = Device(env::text("SF_TEST_DEVICE"));
  std::string why, missing;
  if (!backend_available(g_device.type, &why))
    GTEST_SKIP() << "unproven here: " << g_device.str() << " is not available: " << why;
  if (op.is_random) GTEST_SKIP() << op.name << " draws: random_device_test.cpp compares the numbers";
  if (t.all.empty()) GTEST_SKIP() << "unproven here: " << op.name << " has no sample to compare";
  OpEntry moved = op;
  moved.call = call_there;
  auto labels = labels_there(op);
  for (auto& s : t.all) {
    auto args = complete(op, *s);
    bool gradients = op.differentiable && s->grad;
    for (DType dtype : {kFloat64, kFloat32, kBFloat16, kFloat16}) {
      if (is_reduced(dtype) && !s->low_precision) continue;
      auto rounded = map_tensors(args, [&](const Tensor& x) { return to_dtype_keeping_layout(x, dtype); });
      auto exact_args = map_tensors(rounded, [](const Tensor& x) { return to_dtype_keeping_layout(x, kFloat64); });
      Evaluation here = evaluate(op, rounded, false), exact = evaluate(op, exact_args, gradients), e;
      for (auto& label : labels) {
        SCOPED_TRACE(describe(op, rounded) + " on " + g_device.str() + (label.empty() ? "" : " by " + label));
        if (!label.empty()) pin_provider("*", label);
        bool float8 = false;
        KernelWatcher watch(
            [&](const KernelCall& c) { float8 = float8 || std::string_view(c.table.name()) == "scaled_product"; });
        try {
          e = evaluate(moved, rounded, gradients);
        } catch (const NotSupported& error) {  // a part of the op, or of its gradient, that has no kernel there
          missing = error.what();
          unpin_providers();
          continue;
        }
        unpin_providers();
        const double usual = tolerance(dtype, reduction_length(args, exact.values));
        compare(e, here, exact, float8 ? std::max(usual, float8_tolerance()) : usual);
      }
    }
  }
  if (!missing.empty()) GTEST_SKIP() << "unproven in part: " << missing;
}

// Each allocation of an op and its gradient fails once, which only the emulator of tests/cuda_emulator can do; without
// its cache, behind which most allocations ask nobody.
void check_failed_allocations(const OpEntry& op, const OpTest& t) {
  g_op = &op;
  g_device = Device(env::text("SF_TEST_DEVICE"));
  if (!backend_available(g_device.type)) GTEST_SKIP() << "unproven here: " << g_device.str() << " is not available";
  auto fail_after = reinterpret_cast<void (*)(int64_t)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_fail_allocations_after"));
  if (!fail_after) GTEST_SKIP() << "a GPU is here, not the emulator";
  if (env::flag("SF_CUDA_CACHE")) GTEST_SKIP() << "SF_CUDA_CACHE=0 lets each allocation fail";
  OpEntry moved = op;
  moved.call = call_there;
  Accelerator& gpu = accelerator(g_device);
  constexpr size_t kSamples = 2;
  for (size_t i = 0; i < t.all.size() && i < kSamples; ++i) {
    auto args =
        map_tensors(complete(op, *t.all[i]), [](const Tensor& x) { return to_dtype_keeping_layout(x, kFloat32); });
    bool any = false;
    map_tensors(args, [&](const Tensor& x) {
      any = true;
      return x;
    });
    if (!any) continue;  // a factory, which stays on the CPU unless told otherwise
    bool gradients = op.differentiable && t.all[i]->grad;
    SCOPED_TRACE(describe(op, args));
    try {
      evaluate(moved, args, gradients);  // tables that stay on the device are there from now on
    } catch (const NotSupported&) {
      continue;
    }
    size_t before = gpu.memory(g_device.index).allocated;
    bool failed = true;
    for (int64_t n = 0; failed; ++n) {
      failed = false;
      fail_after(n);
      try {
        evaluate(moved, args, gradients);
      } catch (const Error& e) {
        failed = true;
        EXPECT_NE(std::string(e.what()).find("out of memory"), std::string::npos) << e.what();
      }
      fail_after(-1);
      ASSERT_EQ(gpu.memory(g_device.index).allocated, before) << "after allocation " << n << " failed";
    }
  }
}

}  // namespace sf::test
