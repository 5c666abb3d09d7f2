#include "scaffolding/backend/cpu/onednn.h"

#include <omp.h>

#include <mutex>
#include <string>
#include <unordered_map>

#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/core/memory_room.h"
#include "scaffolding/core/scratch.h"

namespace sf::cpu::onednn {

using dnnl::memory;

// Where an allocation fails in it, the library goes on with a null pointer.
constexpr size_t kRoomOfAPrimitive = size_t(16) << 20;  // code of several kernels, and what writes it
constexpr size_t kRoomOfACall = size_t(1) << 20;

const dnnl::engine& engine() {
  static const dnnl::engine* e = [] {
    require_room(kRoomOfAPrimitive, "oneDNN");
    // Before the first primitive: SF_ISA limits the library as it limits our own kernels.
    switch (best()) {
      case Isa::base: dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41); break;
      case Isa::avx2: dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2); break;
      case Isa::avx512: dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core); break;
      case Isa::avx512bf16: dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16); break;
      default: break;
    }
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *e;
}
const dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}
bool has_avx512() { return has(Isa::avx512); }

memory::data_type type_of(DType t) {
  switch (t) {
    case kBFloat16: return memory::data_type::bf16;
    case kFloat16: return memory::data_type::f16;
    default: return memory::data_type::f32;
  }
}
memory::desc describe(const TensorView& t) {
  memory::dims sizes(t.sizes, t.sizes + t.ndim), strides(t.strides, t.strides + t.ndim);
  return {sizes, type_of(t.dtype), strides};
}
memory::desc any_layout(memory::dims sizes, DType t) { return {sizes, type_of(t), memory::format_tag::any}; }
int64_t fingerprint(const memory::desc& desc) {
  uint64_t h = 1469598103934665603ull;  // FNV-1a over the numbers that say where an element lies
  auto mix = [&](int64_t x) { h = (h ^ uint64_t(x)) * 1099511628211ull; };
#if DNNL_VERSION_MAJOR >= 3
  for (int64_t x : desc.get_dims()) mix(x);
  for (int64_t x : desc.get_padded_dims()) mix(x);
  for (int64_t x : desc.get_strides()) mix(x);
  for (int64_t x : desc.get_inner_blks()) mix(x);
  for (int64_t x : desc.get_inner_idxs()) mix(x);
  mix(int64_t(desc.get_data_type()));
#else
  const dnnl_memory_desc_t& d = desc.data;
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  mix(d.format_kind), mix(d.data_type), mix(d.extra.flags);
  for (int i = 0; i < d.ndims; ++i) mix(d.dims[i]), mix(d.padded_dims[i]), mix(b.strides[i]);
  for (int i = 0; i < b.inner_nblks; ++i) mix(b.inner_blks[i]), mix(b.inner_idxs[i]);
#endif
  mix(int64_t(desc.get_size()));
  return int64_t(h);
}
memory wrap(const memory::desc& desc, const void* data) { return {desc, engine(), const_cast<void*>(data)}; }

dnnl::primitive_attr attributes(const dnnl::post_ops& ops) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (ops.len() > 0) attr.set_post_ops(ops);
  return attr;
}

void Key::add(const TensorView& t) {
  add(t.ndim);
  if (!t) return;
  add(int(t.dtype));
  for (int i = 0; i < t.ndim; ++i) add(t.sizes[i]), add(t.strides[i]);
}

namespace {
struct Cache {
  std::mutex lock;
  std::unordered_map<std::string, std::shared_ptr<const Compiled>> map;
};
Cache& cache() {
  static Cache* c = new Cache;
  return *c;
}
constexpr size_t kMaxPrimitives = 4096;  // a model has tens of shapes; a runaway of shapes starts over
constexpr int kScratchSlot = 6;
}  // namespace

std::shared_ptr<const Compiled> compiled(const Key& key, void (*build)(void* ctx, Compiled& out), void* ctx) {
  std::string name(reinterpret_cast<const char*>(key.words), size_t(key.count) * sizeof(int64_t));
  name += std::to_string(omp_get_max_threads());
  Cache& c = cache();
  std::lock_guard guard(c.lock);
  if (auto at = c.map.find(name); at != c.map.end()) return at->second;
  if (c.map.size() >= kMaxPrimitives) c.map.clear();
  require_room(kRoomOfAPrimitive, "oneDNN");
  auto made = std::make_shared<Compiled>();
  try {
    build(ctx, *made);
    made->ok = true;
  } catch (const dnnl::error&) {
    made->ok = false;
  }
  c.map.emplace(std::move(name), made);
  return made;
}

void run(const Compiled& c, std::initializer_list<Arg> args) {
  require_room(kRoomOfACall, "oneDNN");
  std::unordered_map<int, memory> map;
  for (const Arg& a : args) map.emplace(a.index, a.memory);
  if (size_t bytes = c.scratchpad.get_size())
    map.emplace(DNNL_ARG_SCRATCHPAD, wrap(c.scratchpad, scratch(bytes, kScratchSlot)));
  c.primitive.execute(stream(), map);
  const_cast<dnnl::stream&>(stream()).wait();
}

void reorder(const memory& from, const memory& to) {
  require_room(kRoomOfAPrimitive, "oneDNN");
  dnnl::stream s = stream();
  dnnl::reorder(from, to).execute(s, const_cast<memory&>(from), const_cast<memory&>(to));
  s.wait();
}

}  // namespace sf::cpu::onednn
