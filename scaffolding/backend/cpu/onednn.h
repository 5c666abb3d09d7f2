// oneDNN behind our kernels: engine, cache of compiled primitives, and small translations.
// Included by *.onednn.cpp only.
// Builds with oneDNN 2.6 and oneDNN 3. Calls are made inside sf::ComputeScope and never inside parallel_for: the
// library starts its own OpenMP team.
#pragma once
#include <dnnl.hpp>
#include <initializer_list>
#include <memory>

#include "scaffolding/core/parallel.h"
#include "scaffolding/core/tensor_view.h"

namespace sf::cpu::onednn {

const dnnl::engine& engine();
const dnnl::stream& stream();  // one per thread
// What oneDNN may use: the processor and SF_ISA.
bool has_avx512();

dnnl::memory::data_type type_of(DType t);
dnnl::memory::desc describe(const TensorView& t);  // sizes and strides as they are
dnnl::memory::desc any_layout(dnnl::memory::dims sizes, DType t);
// Equal for equal layouts: names a packed weight, which primitives of many shapes may share.
int64_t fingerprint(const dnnl::memory::desc& desc);
dnnl::memory wrap(const dnnl::memory::desc& desc, const void* data);  // data is written through for outputs
dnnl::primitive_attr attributes(const dnnl::post_ops& ops = {});      // scratchpad from the caller

// A compiled primitive with the layouts it chose. Executable from any thread at once:
// scratch memory comes with the call.
struct Compiled {
  dnnl::primitive primitive;
  dnnl::memory::desc src, weights, dst;  // of whatever the primitive calls so, diff_ for backward
  dnnl::memory::desc scratchpad;
  bool ok = false;  // false: the library cannot do it; remembered too
};

// What a primitive depends on, as numbers.
struct Key {
  int64_t words[96];
  int count = 0;
  void add(int64_t w) { words[count++] = w; }
  void add(const TensorView& t);  // dtype, sizes, strides
};
// The primitive of `key`, built on first use. A dnnl::error from `build` makes an entry that is not ok.
// Inside a ComputeScope:
// a primitive divides its work for the threads it may use at that moment, so their number is part of its name.
std::shared_ptr<const Compiled> compiled(const Key& key, void (*build)(void* ctx, Compiled& out), void* ctx);
template <class F> std::shared_ptr<const Compiled> compiled(const Key& key, const F& build) {
  return compiled(
      key, [](void* ctx, Compiled& out) { (*static_cast<const F*>(ctx))(out); }, const_cast<F*>(&build));
}

struct Arg {
  int index;
  dnnl::memory memory;
};
void run(const Compiled& c, std::initializer_list<Arg> args);  // waits
void reorder(const dnnl::memory& from, const dnnl::memory& to);

}  // namespace sf::cpu::onednn
