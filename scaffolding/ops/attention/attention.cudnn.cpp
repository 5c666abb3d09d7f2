// Attention and its gradients through cuDNN's fused engines, on tensor cores, without a matrix of scores: bfloat16 and
// float16, heads of a multiple of 8 up to 256, causal or not, grouped queries. Masks, other widths and what cuDNN has
// no plan for go to the next provider. cuDNN compiles most of these engines when a plan is made, which takes about half
// a second for each new shape.
#include <bit>
#include <optional>

#include "scaffolding/backend/cuda/cudnn_plans.h"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/ops/attention/attention_graph.h"
#include "scaffolding/ops/attention/kernel.h"

namespace sf::cuda {
namespace {

using cudnn::AttentionGradientGraph;
using cudnn::AttentionGraph;
using cudnn::Dims;
using cudnn::PlanEntry;
using cudnn::PlanKey;
using Memory = std::pair<cudnn::Id, void*>;

constexpr size_t kLeastVersion =
    91002;  // 9.10.0 and 9.10.1 compute wrong numbers ("cuDNN release notes"); before 9.10 masks want another infinity
// before, the gradients of keys beyond whole tiles of 128 need a list of lengths
constexpr size_t kTailsInGradients = 91501;
constexpr int64_t kWidest = 256;

// The strides of [B, H, L, D], where a dimension of one element may have any;
// nothing where cuDNN could not read 16 bytes at a time.
std::optional<Dims> strides_of(const TensorView& t) {
  if (!t || t.ndim != 4 || cudnn::alignment(t) < 16 || (t.sizes[3] > 1 && t.strides[3] != 1)) return {};
  Dims s(4, 1);
  for (int i = 2; i >= 0; --i) {
    s[size_t(i)] = t.sizes[i] > 1 ? t.strides[i] : s[size_t(i) + 1] * t.sizes[i + 1];
    if (s[size_t(i)] <= 0 || s[size_t(i)] % 8 != 0) return {};
  }
  return s;
}

template <class Args> std::optional<AttentionGraph> describe(const Args& a, bool lse) {
  const TensorView &q = a.q, &k = a.k, &v = a.v;
  if (!cudnn_settings().enabled || !is_reduced(q.dtype) || a.mask || q.numel() == 0 || k.numel() == 0 || v.numel() == 0)
    return {};
  if (q.sizes[3] % 8 != 0 || v.sizes[3] % 8 != 0 || q.sizes[3] > kWidest || v.sizes[3] > kWidest) return {};
  if (!cudnn::usable(q.device.index) || cudnn::api().version() < kLeastVersion) return {};
  auto sq = strides_of(q), sk = strides_of(k), sv = strides_of(v), sy = strides_of(a.y);
  if (!sq || !sk || !sv || !sy) return {};
  return AttentionGraph{q.dtype,     q.sizes[0],     q.sizes[1], k.sizes[1], q.sizes[2], k.sizes[2],
                        q.sizes[3],  v.sizes[3],     *sq,        *sk,        *sv,        *sy,
                        a.is_causal, float(a.scale), lse};
}

PlanKey key_of(const char* op, const AttentionGraph& a) {
  PlanKey key(op);
  for (int64_t x : {int64_t(a.dtype), a.batch, a.heads, a.key_heads, a.queries, a.keys, a.width, a.value_width,
                    int64_t(a.causal), int64_t(std::bit_cast<uint32_t>(a.scale)), int64_t(a.lse)})
    key.add(x);
  for (const Dims* d : {&a.q, &a.k, &a.v, &a.y})
    for (int64_t x : *d) key.add(x);
  return key;
}

PlanEntry plan_of(const AttentionGraph& a, int device) {
  return cudnn::find_plan(device, key_of("attention", a), {cudnn_settings().deterministic, false},
                          [&] { return graph_of(a); });
}
bool supports_forward(const AttentionForward& f) {
  auto a = describe(f, f.lse.defined());
  return a && plan_of(*a, f.q.device.index);
}
void forward(const AttentionForward& f) {
  PlanEntry plan = plan_of(*describe(f, f.lse.defined()), f.q.device.index);
  std::vector<Memory> memory{{cudnn::kAttentionQ, f.q.data},
                             {cudnn::kAttentionK, f.k.data},
                             {cudnn::kAttentionV, f.v.data},
                             {cudnn::kAttentionY, f.y.data}};
  if (f.lse) memory.emplace_back(cudnn::kAttentionLse, f.lse.data);
  run_plan(f.q.device.index, plan, memory);
}

// A gradient that nobody asked for is written all the same.
struct Wanted {
  std::optional<Scratch> memory;
  TensorView view;
  Wanted(const TensorView& gradient, const TensorView& of) : view(gradient) {
    if (gradient) return;
    view = of;
    memory.emplace(of.device, size_t(of.numel()) * size_of(of.dtype));
    view.data = memory->as<void>();
    int64_t stride = 1;
    for (int i = of.ndim - 1; i >= 0; --i) view.strides[i] = stride, stride *= of.sizes[i];
  }
};
// Its strides before there is memory: those that Wanted gives it.
std::optional<Dims> gradient_strides(const TensorView& gradient, const TensorView& of) {
  if (gradient) return strides_of(gradient);
  return Dims{of.sizes[1] * of.sizes[2] * of.sizes[3], of.sizes[2] * of.sizes[3], of.sizes[3], 1};
}

bool takes_wide_gradients(int device) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "attention_backward");
  return major == 9;
}

std::optional<AttentionGradientGraph> describe(const AttentionBackward& b) {
  auto a = describe(b, true);
  if (!a || b.dmask || (a->queries == 1 && a->keys == 1)) return {};
  if (a->keys % 128 != 0 && cudnn::api().version() < kTailsInGradients) return {};
  if ((a->width > 128 || a->value_width > 128) && !takes_wide_gradients(b.q.device.index)) return {};
  auto dy = strides_of(b.dy), dq = gradient_strides(b.dq, b.q), dk = gradient_strides(b.dk, b.k),
       dv = gradient_strides(b.dv, b.v);
  if (!dy || !dq || !dk || !dv) return {};
  return AttentionGradientGraph{*a, *dy, *dq, *dk, *dv, !cudnn_settings().deterministic};
}
PlanEntry plan_of(const AttentionGradientGraph& a, int device) {
  PlanKey key = key_of("attention_backward", a.forward);
  for (const Dims* d : {&a.dy, &a.dq, &a.dk, &a.dv})
    for (int64_t x : *d) key.add(x);
  return cudnn::find_plan(device, key, {!a.accumulate, false}, [&] { return graph_of(a); });
}
bool supports_backward(const AttentionBackward& b) {
  auto a = describe(b);
  return a && plan_of(*a, b.q.device.index);
}
void backward(const AttentionBackward& b) {
  auto a = *describe(b);
  PlanEntry plan = plan_of(a, b.q.device.index);
  Wanted dq(b.dq, b.q), dk(b.dk, b.k), dv(b.dv, b.v);
  size_t rows = size_t(a.forward.batch * a.forward.heads * a.forward.queries);
  Scratch delta(b.q.device, rows * sizeof(float)),
      sums(b.q.device, a.accumulate ? rows * size_t(a.forward.width) * sizeof(float) : 0);
  std::vector<Memory> memory{{cudnn::kAttentionQ, b.q.data},      {cudnn::kAttentionK, b.k.data},
                             {cudnn::kAttentionV, b.v.data},      {cudnn::kAttentionY, b.y.data},
                             {cudnn::kAttentionLse, b.lse.data},  {cudnn::kAttentionDy, b.dy.data},
                             {cudnn::kAttentionDq, dq.view.data}, {cudnn::kAttentionDk, dk.view.data},
                             {cudnn::kAttentionDv, dv.view.data}, {cudnn::kAttentionDelta, delta.as<void>()}};
  if (a.accumulate) memory.emplace_back(cudnn::kAttentionSums, sums.as<void>());
  run_plan(b.q.device.index, plan, memory);
}

SF_KERNEL(attention_forward, DeviceType::CUDA, "cudnn", 10, forward, supports_forward)
SF_KERNEL(attention_backward, DeviceType::CUDA, "cudnn", 10, backward, supports_backward)

}  // namespace
}  // namespace sf::cuda
