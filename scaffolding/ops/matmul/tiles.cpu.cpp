// The innermost loops of matrix products, compiled once for all that multiply: a hundred functions, which each of ten
// files would compile again.
#include "scaffolding/ops/matmul/row_gemm.h"

namespace sf {
namespace SF_ISA {

template TileFn<MulF32> tile_for<MulF32, true>(int, int);
template TileFn<MulF32> tile_for<MulF32, false>(int, int);
template TileFn<MulF64> tile_for<MulF64, true>(int, int);
template TileFn<MulF64> tile_for<MulF64, false>(int, int);
#if defined(__AVX512BF16__)
template TileFn<MulBF16> tile_for<MulBF16, true>(int, int);
template TileFn<MulBF16> tile_for<MulBF16, false>(int, int);
#endif
template RowTileFn row_tile_for<1>(int, int);
template RowTileFn row_tile_for<2>(int, int);

}  // namespace SF_ISA
}  // namespace sf
