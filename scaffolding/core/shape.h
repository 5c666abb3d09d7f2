// Shape: a short list of int64 held inline (sizes, strides, dims, padding). At most kMaxDims entries.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <vector>

#include "scaffolding/core/error.h"

namespace sf {

inline constexpr int kMaxDims = 12;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> v) : Shape(v.begin(), int64_t(v.size())) {}
  Shape(const std::vector<int64_t>& v) : Shape(v.data(), int64_t(v.size())) {}
  Shape(const int64_t* p, int64_t n) : n_(checked(n)) { std::copy(p, p + n, d_); }
  Shape(const Shape& o) : n_(o.n_) { std::copy(o.d_, o.d_ + n_, d_); }
  Shape& operator=(const Shape& o) {
    n_ = o.n_;
    std::copy(o.d_, o.d_ + n_, d_);
    return *this;
  }
  static Shape filled(int64_t n, int64_t value) {
    Shape s;
    s.n_ = checked(n);
    std::fill(s.d_, s.d_ + n, value);
    return s;
  }

  int64_t size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int64_t& operator[](int64_t i) { return d_[i]; }
  int64_t operator[](int64_t i) const { return d_[i]; }
  int64_t* begin() { return d_; }
  int64_t* end() { return d_ + n_; }
  const int64_t* begin() const { return d_; }
  const int64_t* end() const { return d_ + n_; }
  const int64_t* data() const { return d_; }
  int64_t& back() { return d_[n_ - 1]; }
  int64_t back() const { return d_[n_ - 1]; }
  void push_back(int64_t v) {
    checked(n_ + 1);
    d_[n_++] = v;
  }
  void insert(int64_t at, int64_t v) {
    checked(n_ + 1);
    std::copy_backward(d_ + at, d_ + n_, d_ + n_ + 1);
    d_[at] = v;
    ++n_;
  }
  void erase(int64_t at) {
    std::copy(d_ + at + 1, d_ + n_, d_ + at);
    --n_;
  }
  bool contains(int64_t v) const { return std::find(begin(), end(), v) != end(); }
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.n_ == b.n_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  static int32_t checked(int64_t n) {
    SF_CHECK(n <= kMaxDims, "shape: at most ", kMaxDims, " dimensions are supported, got ", n);
    return int32_t(n);
  }
  int32_t n_ = 0;
  int64_t d_[kMaxDims];
};

std::string str(const Shape& s);  // "[2, 3]"
int64_t numel(const Shape& s);    // product; ValueError on a negative size or overflow
Shape contiguous_strides(const Shape& sizes);
Shape channels_last_strides(const Shape& sizes);  // NHWC order for 4-D, NDHWC for 5-D, NLC for 3-D
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);  // ValueError naming both when they do not fit
int64_t wrap_dim(const char* op, int64_t dim, int64_t ndim);             // -1 -> ndim-1; IndexError when out of range
Shape wrap_dims(const char* op, const Shape& dims, int64_t ndim);        // each wrapped, no repeats; empty means all

}  // namespace sf
