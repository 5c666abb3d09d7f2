// One product as cuBLASLt is asked for it; what its heuristics chose is kept per shape, layout, alignment and epilogue.
// It thinks in columns: what it is asked for is c^T = b^T a^T, so that its first operand is our b, its rows are our n,
// and its bias, one number per row, is ours per column. Thread-safe.
#pragma once
#include <array>
#include <optional>

#include "scaffolding/backend/cuda/cublaslt.h"
#include "scaffolding/core/tensor_view.h"

namespace sf::cuda {

// A matrix X[r, c] of a batch, as cuBLASLt sees memory: by columns.
struct Columns {
  const void* data = nullptr;
  int64_t rows = 0, cols = 0, ld = 0, batch_stride = 0;
  bool as_written = false;  // the columns are X's own, else its rows: then this is X^T
};
TensorView batch_of_one(TensorView t);                   // [m, n] as [1, m, n]
std::optional<Columns> columns_of(const TensorView& x);  // x[batch, r, c]; none without a dimension of stride 1

struct ProductEpilogue {
  cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_DEFAULT;
  TensorView bias;  // read, or the bias' gradient that is written
  TensorView pre;
};

// Of float8 operands: numbers on the device that products are multiplied by, one for a matrix or one for each column
// (first) and row (second) of c.
struct ProductScales {
  const float *first = nullptr, *second = nullptr;
  bool vectors = false;
};

struct Product {
  DType first_type, second_type, out;
  int64_t batch;
  Columns first, second, result;  // b, a, c
  ProductEpilogue epilogue;
  bool tf32;
  Device device;
  ProductScales scales = {};
  const void* addend = nullptr;    // what beta multiplies, laid out as c; null: c itself
  bool fast_accumulation = false;  // of float8: sums are not promoted to float32 on the way

  bool exists() const;  // whether cuBLASLt has an algorithm for it
  // Of int8 operands the sums are int32, alpha and beta whole numbers.
  // c = epilogue(alpha * product + beta * addend) on the current stream. False when there is no algorithm:
  // nothing is done then.
  bool run(double alpha, double beta) const;
};

}  // namespace sf::cuda
