// KernelTable and SF_KERNEL: how backends offer implementations of an op.
// One table per kernel argument struct. Any file, library or plugin may register before main(); find() takes the
// first provider, by priority, that supports the call. Tables live as long as the process; registration happens while
// libraries load, look-ups are lock-free afterwards.
#pragma once
#include <type_traits>

#include "scaffolding/core/tensor_view.h"

namespace sf {

struct KernelEntry {
  const char* provider = nullptr;  // "native", "onednn", "cublaslt"
  const char* isa = nullptr;       // instruction set of a native CPU kernel, else null
  int priority = 0;
  void (*fn)() = nullptr;
  void (*supports)() = nullptr;  // bool(const Args&), or null: supports every call
};

class KernelTableBase {
 public:
  constexpr explicit KernelTableBase(const char* name) : name_(name) {}
  const char* name() const { return name_; }
  int count(DeviceType d) const { return count_[int(d)]; }
  const KernelEntry& entry(DeviceType d, int i) const { return entries_[int(d)][i]; }
  void add(DeviceType d, KernelEntry e);
  static KernelTableBase* first();  // every table that has a kernel, for listings and tests
  KernelTableBase* next() const { return next_; }

 protected:
  static constexpr int kMax = 12;  // two kernels of each of four instruction sets, one for tiles, some libraries
  const char* name_;
  KernelTableBase* next_ = nullptr;
  int count_[kNumDeviceTypes] = {};
  KernelEntry entries_[kNumDeviceTypes][kMax] = {};
};

namespace detail {
// Called by SF_KERNEL. Ignores kernels whose instruction set this processor lacks (or SF_ISA forbids).
void register_kernel(KernelTableBase& table, DeviceType device, const char* provider, int priority, void (*fn)(),
                     void (*supports)(), const char* isa);
extern bool kernel_watch;  // SF_TRACE, SF_PROVIDER or a test pins providers: take the slow path
const KernelEntry* pick_pinned(const KernelTableBase& table, DeviceType device, const void* args,
                               bool (*ask)(const KernelEntry&, const void*));
void trace_call(const KernelTableBase& table, const KernelEntry& e, const void* args);
}  // namespace detail

template <class Args> class KernelTable : public KernelTableBase {
 public:
  using KernelTableBase::KernelTableBase;
  using Fn = void (*)(const Args&);
  using Supports = bool (*)(const Args&);

  // A callable, or empty when no provider supports the call.
  class Found {
   public:
    Found(const KernelTable* t, const KernelEntry* e) : table_(t), entry_(e) {}
    explicit operator bool() const { return entry_ != nullptr; }
    void operator()(const Args& a) const {
      if (detail::kernel_watch) [[unlikely]]
        return detail::trace_call(*table_, *entry_, &a);
      reinterpret_cast<Fn>(entry_->fn)(a);
    }
    const char* provider() const { return entry_->provider; }

   private:
    const KernelTable* table_;
    const KernelEntry* entry_;
  };

  Found find(Device device, const Args& args) const {
    if (device.is_meta()) return {this, &kMeta};
    DeviceType type = device.is_cpu() ? DeviceType::CPU : device.type;  // mps is the CPU with Accelerate preferred
    if (detail::kernel_watch) [[unlikely]]
      return {this, detail::pick_pinned(*this, type, &args, ask)};
    for (int i = 0; i < count_[int(type)]; ++i) {
      const KernelEntry& e = entries_[int(type)][i];
      if (ask(e, &args)) return {this, &e};
    }
    return {this, nullptr};
  }

 private:
  static bool ask(const KernelEntry& e, const void* args) {
    return !e.supports || reinterpret_cast<bool (*)(const Args&)>(e.supports)(*static_cast<const Args*>(args));
  }
  static void nothing(const Args&) {}
  // Meta tensors have no bytes: the kernel does nothing, the shape rule has done its work.
  static inline const KernelEntry kMeta{"meta", nullptr, 0, reinterpret_cast<void (*)()>(&nothing), nullptr};
};

#define SF_CAT_(a, b) a##b
#define SF_CAT(a, b) SF_CAT_(a, b)
#define SF_STR_(x) #x
#define SF_STR(x) SF_STR_(x)

// The registering function must not itself be compiled with the file's instruction set: it runs on every processor.
#if defined(SF_ISA) && defined(__x86_64__)
#define SF_KERNEL_CTOR __attribute__((constructor, target("no-avx,no-avx2,no-avx512f")))
#define SF_KERNEL_ISA SF_STR(SF_ISA)
#else
#define SF_KERNEL_CTOR __attribute__((constructor))
#define SF_KERNEL_ISA nullptr
#endif

// SF_KERNEL(table, DeviceType::CPU, "native", priority, function, supports or nullptr)
#define SF_KERNEL(table, device, provider, priority, fn, supports) \
  SF_KERNEL_(table, device, provider, priority, fn, supports, __COUNTER__)
#define SF_KERNEL_(table, device, provider, priority, fn, supports, n)                                     \
  SF_KERNEL_CTOR static void SF_CAT(sf_register_kernel_, n)() {                                            \
    using Table = std::remove_cvref_t<decltype(table)>;                                                    \
    Table::Fn kernel = fn;                                                                                 \
    Table::Supports accepts = supports;                                                                    \
    ::sf::detail::register_kernel(table, device, provider, priority, reinterpret_cast<void (*)()>(kernel), \
                                  reinterpret_cast<void (*)()>(accepts), SF_KERNEL_ISA);                   \
  }

}  // namespace sf
