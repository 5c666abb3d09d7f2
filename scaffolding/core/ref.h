// Ref<T>: an intrusive pointer, eight bytes. T has an atomic counter `refs` and a static T::destroy(T*).
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace sf {

struct RefCounted {
  mutable std::atomic<uint32_t> refs{0};
};

template <class T> class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* p) : p_(p) { add(); }
  Ref(const Ref& o) : p_(o.p_) { add(); }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  ~Ref() { drop(); }
  Ref& operator=(const Ref& o) {
    Ref copy(o);
    std::swap(p_, copy.p_);
    return *this;
  }
  Ref& operator=(Ref&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_; }
  T* release() { return std::exchange(p_, nullptr); }
  // The first owner of a new object: nobody else knows it yet, so that the count needs no atomic addition.
  static Ref fresh(T* p) {
    p->refs.store(1, std::memory_order_relaxed);
    return adopt(p);
  }
  static Ref adopt(T* p) {  // takes over a count that is already held
    Ref r;
    r.p_ = p;
    return r;
  }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  void add() const {
    if (p_) p_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  void drop() {
    if (!p_) return;
    // Only an owner can make another: a sole one may skip the atomic subtraction, which costs 5 ns.
    if (p_->refs.load(std::memory_order_acquire) == 1 || p_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
      T::destroy(p_);
  }
  T* p_ = nullptr;
};

}  // namespace sf
