// SmallVector: the first N elements inline, more on the heap. For the edges and outputs of tape nodes.
#pragma once
#include <cstddef>
#include <new>
#include <utility>

namespace sf {

template <class T, size_t N> class SmallVector {
 public:
  SmallVector() = default;
  SmallVector(const SmallVector&) = delete;
  ~SmallVector() {
    clear();
    if (data_ != inline_data()) ::operator delete(data_);
  }
  void reserve(size_t n) {
    if (n <= capacity_) return;
    T* bigger = static_cast<T*>(::operator new(n * sizeof(T)));
    for (size_t i = 0; i < size_; ++i) {
      new (bigger + i) T(std::move(data_[i]));
      data_[i].~T();
    }
    if (data_ != inline_data()) ::operator delete(data_);
    data_ = bigger;
    capacity_ = n;
  }
  template <class... A> T& emplace_back(A&&... a) {
    if (size_ == capacity_) reserve(2 * capacity_);
    return *new (data_ + size_++) T{std::forward<A>(a)...};
  }
  void push_back(T v) { emplace_back(std::move(v)); }
  void resize(size_t n) {
    reserve(n);
    while (size_ < n) emplace_back();
    while (size_ > n) data_[--size_].~T();
  }
  void clear() { resize_down(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  T* inline_data() { return reinterpret_cast<T*>(bytes_); }
  void resize_down() {
    while (size_ > 0) data_[--size_].~T();
  }
  alignas(T) unsigned char bytes_[N * sizeof(T)];
  T* data_ = inline_data();
  size_t size_ = 0, capacity_ = N;
};

}  // namespace sf
