// bfloat16 products of short rows (k <= 768) by oneDNN's brgemm: at k = 320 it runs at 89-93 % of the vdpbf16ps peak
// where our own kernel's tiles end too soon (86 %). Everything else is ours: at 1024..4096 our kernel leads in both
// types (Zen 5, 2 threads: float32 88-94 % against 81-91 %, bfloat16 86-92 % against 78-90 %).
// b is reordered into the layout the library asks for, on every call or once per version:
// plain rows cost it up to 10 %.
#include "scaffolding/backend/cpu/bf16_dot.h"
#include "scaffolding/backend/cpu/onednn.h"
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/matmul/post_ops.h"

namespace sf {
namespace {

namespace dn = cpu::onednn;
using dnnl::memory;

constexpr uint32_t kFormat = 100;  // in PackedKey
constexpr int kSlotWeights = 7;

// The product as one matrix product per batch entry; one tall product where b is shared and rows follow on.
struct Plan {
  TensorView a, b, c;
  bool packed;  // b goes through the library's own layout
};
Plan plan_of(const Gemm& g) {
  Plan p{g.a, g.b, g.c, false};
  const int64_t m = g.c.sizes[1];
  auto tall = [&](TensorView& t) {
    t.sizes[1] *= t.sizes[0], t.sizes[0] = 1, t.strides[0] = t.sizes[1] * t.strides[1];
  };
  if (g.c.sizes[0] > 1 && g.b.strides[0] == 0 && g.a.strides[0] == m * g.a.strides[1] &&
      g.c.strides[0] == m * g.c.strides[1]) {
    tall(p.a);
    tall(p.c);
    p.b.sizes[0] = 1;
  }
  // A batch that one operand broadcasts has size 1 there, in oneDNN's words.
  if (p.a.strides[0] == 0) p.a.sizes[0] = 1;
  if (p.b.strides[0] == 0) p.b.sizes[0] = 1;
  p.packed = p.c.sizes[0] == 1;
  return p;
}

memory::desc plain(const TensorView& t) {
  TensorView u = t;
  if (u.sizes[0] == 1) u.strides[0] = u.sizes[1] * u.sizes[2];
  return dn::describe(u);
}

std::shared_ptr<const dn::Compiled> primitive_of(const Gemm& g, const Plan& p) {
  dn::Key key;
  key.add(int64_t(1));
  key.add(p.a), key.add(p.b), key.add(p.c), key.add(g.bias);
  key.add(int64_t(g.act));
  return dn::compiled(key, [&](dn::Compiled& out) {
    dnnl::post_ops ops;
    append(ops, g.act);
    memory::desc a = plain(p.a), c = plain(p.c);
    memory::desc b = p.packed ? dn::any_layout({1, p.b.sizes[1], p.b.sizes[2]}, p.b.dtype) : plain(p.b);
    memory::desc bias;
    if (g.bias) bias = memory::desc({1, 1, g.bias.sizes[0]}, dn::type_of(g.bias.dtype), memory::format_tag::abc);
#if DNNL_VERSION_MAJOR >= 3
    dnnl::matmul::primitive_desc pd =
        g.bias ? dnnl::matmul::primitive_desc(dn::engine(), a, b, bias, c, dn::attributes(ops))
               : dnnl::matmul::primitive_desc(dn::engine(), a, b, c, dn::attributes(ops));
#else
    dnnl::matmul::primitive_desc pd(g.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c),
                                    dn::attributes(ops), dn::engine());
#endif
    out = {dnnl::matmul(pd), pd.src_desc(), pd.weights_desc(), pd.dst_desc(), pd.scratchpad_desc()};
  });
}

void run_gemm(const Gemm& g) {
  const Plan p = plan_of(g);
  ComputeScope scope;
  const auto prim = primitive_of(g, p);
  auto execute = [&](const void* b) {
    memory am = dn::wrap(prim->src, p.a.data), bm = dn::wrap(prim->weights, b), cm = dn::wrap(prim->dst, p.c.data);
    if (!g.bias) return dn::run(*prim, {{DNNL_ARG_SRC, am}, {DNNL_ARG_WEIGHTS, bm}, {DNNL_ARG_DST, cm}});
    memory::desc bias({1, 1, g.bias.sizes[0]}, dn::type_of(g.bias.dtype), memory::format_tag::abc);
    dn::run(
        *prim,
        {{DNNL_ARG_SRC, am}, {DNNL_ARG_WEIGHTS, bm}, {DNNL_ARG_DST, cm}, {DNNL_ARG_BIAS, dn::wrap(bias, g.bias.data)}});
  };
  if (!p.packed) return execute(p.b.data);
  auto pack = [&](void* to) { dn::reorder(dn::wrap(plain(p.b), p.b.data), dn::wrap(prim->weights, to)); };
  const size_t bytes = prim->weights.get_size();
  cpu::PackedKey slot{p.b.data,
                      g.b_version,
                      kFormat + uint32_t(p.b.dtype),
                      {p.b.sizes[1], p.b.sizes[2], p.b.strides[1], p.b.strides[2], dn::fingerprint(prim->weights)}};
  cpu::PackedWeight kept(slot, bytes, pack);
  void* b = kept.get();
  if (!b) pack(b = scratch(bytes, kSlotWeights));
  execute(b);
}

bool readable(const TensorView& t) {
  const int64_t r = t.strides[1], c = t.strides[2];
  return (c == 1 && r >= t.sizes[2]) || (r == 1 && c >= t.sizes[1]);
}

bool supports(const Gemm& g) {
  const DType t = g.a.dtype;
  if (t != kBFloat16 || g.b.dtype != t || !cpu::bf16_library_pays() || g.alpha != 1 || g.beta != 0 || g.pre)
    return false;
  if (g.c.dtype != t && g.c.dtype != kFloat32) return false;
  const int64_t m = g.c.sizes[1], n = g.c.sizes[2], k = g.a.sizes[2];
  if (m * g.c.sizes[0] < 128 || n < 64 || k < 64 || k > 768 || m * n * k < (int64_t(1) << 24)) return false;
  if (!readable(g.a) || !readable(g.b) || g.c.strides[2] != 1 || g.c.strides[1] < n) return false;
  ComputeScope scope;
  return primitive_of(g, plan_of(g))->ok;
}

}  // namespace

SF_KERNEL(gemm, DeviceType::CPU, "onednn", 10, run_gemm, supports)

}  // namespace sf
