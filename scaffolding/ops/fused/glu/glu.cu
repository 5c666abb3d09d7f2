// Gated linear units on CUDA: both gradients in one pass, because they may overwrite what they are made of.
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/fused/glu/gate.cuh"

namespace sf::cuda {
namespace {

template <class T> struct Matrix {
  T* data;
  int64_t stride;
  Matrix(const TensorView& t) : data(t.as<T>()), stride(t.sizes[0] > 1 ? t.strides[0] : 0) {}
  __device__ T* at(int64_t row, int64_t col) const { return data + row * stride + col; }
};
template <class T> struct Glu {
  Matrix<T> hidden, gate, dy, out, dgate;  // out: y or dhidden
  int64_t rows, cols, first_row = 0;
};

// A thread takes V neighbours of a row: index counts vectors, `of_row` to a row.
template <class T, int V, bool kBackward>
__global__ void __launch_bounds__(kThreads)
    glu_elements(Glu<T> g, uint32_t vectors, Divider of_row, GluActivation act, PreviousGrid previous) {
  using A = real_t<T>;
  const uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  previous.wait();
  if (i >= vectors) return;
  const uint32_t r = of_row.quotient(i);
  const int64_t row = g.first_row + r, c = int64_t(i - r * of_row.d) * V;
  A hidden[V], gate[V], dy[V], y[V];
  read_lanes<V>(g.hidden.at(row, c), hidden);
  read_lanes<V>(g.gate.at(row, c), gate);
  if constexpr (kBackward) read_lanes<V>(g.dy.at(row, c), dy);
  Gate<T>::choose(act, [&](auto activation, auto slope) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if constexpr (kBackward) {
        y[k] = dy[k] * activation(gate[k]);
        gate[k] = dy[k] * hidden[k] * slope(gate[k]);
      } else {
        y[k] = hidden[k] * activation(gate[k]);
      }
    }
  });
  write_lanes<V>(g.out.at(row, c), y);
  if constexpr (kBackward) write_lanes<V>(g.dgate.at(row, c), gate);
}

template <class T, int V, bool kBackward> void launch_glu(const char* op, Device device, Glu<T> g, GluActivation act) {
  const int64_t of_row = g.cols / V, rows_at_once = INT32_MAX / of_row;
  SF_CHECK(rows_at_once > 0, op, ": rows may have ", INT32_MAX, " vectors of ", V, " elements at most, got ", of_row);
  for (g.first_row = 0; g.first_row < g.rows; g.first_row += rows_at_once) {
    uint32_t vectors = uint32_t(of_row * (g.rows - g.first_row < rows_at_once ? g.rows - g.first_row : rows_at_once));
    launch(op, device, blocks_for(vectors, 1), glu_elements<T, V, kBackward>, g, vectors, Divider(uint32_t(of_row)),
           act);
  }
}
template <bool kBackward>
void run(const char* op, const TensorView& hidden, const TensorView& gate, const TensorView& dy, const TensorView& out,
         const TensorView& dgate, GluActivation act) {
  if (out.numel() == 0) return;
  as_float(out.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int V = lanes_for<T>();
    Glu<T> g{hidden, gate, dy, out, dgate, out.sizes[0], out.sizes[1]};
    bool vectors = g.cols % V == 0;
    for (const Matrix<T>* m : {&g.hidden, &g.gate, &g.dy, &g.out, &g.dgate})
      vectors = vectors && m->stride % V == 0 && aligned_rows<T, V>(0, m->data);
    if (vectors) launch_glu<T, V, kBackward>(op, out.device, g, act);
    else launch_glu<T, 1, kBackward>(op, out.device, g, act);
  });
}

void forward(const GluForward& f) { run<false>("glu", f.hidden, f.gate, f.y, f.y, f.y, f.act); }
void backward(const GluBackward& b) { run<true>("glu_backward", b.hidden, b.gate, b.dy, b.dhidden, b.dgate, b.act); }
SF_KERNEL(glu_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(glu_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
