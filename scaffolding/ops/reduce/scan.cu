// Running sums, products and weighted sums on CUDA: a thread per row where rows are many or short, else a block per row
// that scans tiles of 256 by shuffles and carries the last total on. Floats accumulate in float64,
// integers wrap around, as on the CPU.
#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf::cuda {
namespace {

// A stretch of a row as a step: total after = value + factor * total before (sums: factor 1),
// or value * total before for products.
template <class A> struct Stretch { A value, factor; };

template <class A> struct Scanned {
  const void *in, *factor;
  void* out;
  DType dtype;
  Scanning what;
  bool reverse;
  int64_t rows, n;
  RowPlaces in_rows, out_rows, factor_rows;
  int64_t in_step, out_step, factor_step;

  __device__ Stretch<A> nothing() const {
    return what == Scanning::CumProd ? Stretch<A>{A(1), A(1)} : Stretch<A>{A(0), A(1)};
  }
  __device__ Stretch<A> joined(const Stretch<A>& a, const Stretch<A>& b) const {
    if (what == Scanning::CumProd) return {a.value * b.value, A(1)};
    return {b.value + b.factor * a.value, b.factor * a.factor};
  }
  __device__ int64_t place(int64_t k) const { return reverse ? n - 1 - k : k; }
  // The k-th of a row in the order of scanning.
  __device__ Stretch<A> item(int64_t in_row, int64_t factor_row, int64_t k) const {
    Stretch<A> s{element<A>(in, dtype, in_row + place(k) * in_step), A(1)};
    if (what == Scanning::Weighted)
      s.factor =
          k > 0 ? element<A>(factor, dtype, factor_row + (reverse ? place(k) + 1 : place(k)) * factor_step) : A(0);
    return s;
  }
};

template <class A> __global__ void __launch_bounds__(kThreads) scan_by_threads(Scanned<A> s) {
  int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= s.rows) return;
  int64_t in = s.in_rows.at(row), out = s.out_rows.at(row), factor = s.factor ? s.factor_rows.at(row) : 0;
  Stretch<A> total = s.nothing();
  for (int64_t k = 0; k < s.n; ++k) {
    total = s.joined(total, s.item(in, factor, k));
    set_element(s.out, s.dtype, out + s.place(k) * s.out_step, total.value);
  }
}

template <class A> __global__ void __launch_bounds__(kThreads) scan_by_blocks(Scanned<A> s) {
  constexpr int kWarps = kThreads / 32;
  __shared__ Stretch<A> of_warp[kWarps];
  int64_t row = blockIdx.x, in = s.in_rows.at(row), out = s.out_rows.at(row),
          factor = s.factor ? s.factor_rows.at(row) : 0;
  int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  Stretch<A> carry = s.nothing();
  for (int64_t first = 0; first < s.n; first += kThreads) {
    int64_t k = first + threadIdx.x;
    Stretch<A> mine = k < s.n ? s.item(in, factor, k) : s.nothing();
    for (int by = 1; by < 32; by *= 2) {
      Stretch<A> before{__shfl_up_sync(~0u, mine.value, unsigned(by)), __shfl_up_sync(~0u, mine.factor, unsigned(by))};
      if (lane >= by) mine = s.joined(before, mine);
    }
    if (lane == 31) of_warp[warp] = mine;
    __syncthreads();
    Stretch<A> before = carry;
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) mine = s.joined(before, mine);
      before = s.joined(before, of_warp[w]);
    }
    carry = before;
    if (k < s.n) set_element(s.out, s.dtype, out + s.place(k) * s.out_step, mine.value);
    __syncthreads();
  }
}

template <class A> void run(const Scan& s) {
  int last = s.in.ndim - 1;
  Scanned<A> x{};
  x.in = s.in.data, x.factor = s.factor.defined() ? s.factor.data : nullptr, x.out = s.out.data;
  x.dtype = s.in.dtype, x.what = s.what, x.reverse = s.reverse;
  x.n = s.in.sizes[last], x.rows = s.in.numel() / x.n;
  x.in_rows = RowPlaces(s.in), x.out_rows = RowPlaces(s.out), x.factor_rows = RowPlaces(s.factor);
  x.in_step = s.in.strides[last], x.out_step = s.out.strides[last],
  x.factor_step = s.factor.defined() ? s.factor.strides[last] : 0;
  constexpr int64_t kManyRows = 1 << 15;  // enough threads to fill a GPU
  if (x.n <= 32 || x.rows >= kManyRows) launch("scan", s.in.device, blocks_for(x.rows, 1), scan_by_threads<A>, x);
  else launch("scan", s.in.device, unsigned(x.rows), scan_by_blocks<A>, x);
}

void scan(const Scan& s) {
  if (s.in.numel() == 0) return;
  if (is_floating(s.in.dtype)) run<double>(s);
  else run<uint64_t>(s);
}
bool supports(const Scan& s) { return !is_float8(s.in.dtype) && s.in.dtype != kBool && s.in.numel() <= INT32_MAX; }

SF_KERNEL(scan_kernel, DeviceType::CUDA, "native", 0, scan, supports)

}  // namespace
}  // namespace sf::cuda
