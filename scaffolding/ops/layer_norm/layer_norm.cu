#include "scaffolding/ops/layer_norm/kernel.h"
#include "scaffolding/ops/layer_norm/row_norm.cuh"

namespace sf::cuda {
namespace {

void forward(const LayerNormForward& f) {
  as_float(f.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = real_t<T>;
    RowNorm<T> n{f.x.as<T>(),
                 data_or_null<const T>(f.residual),
                 data_or_null<T>(f.sum),
                 f.y.as<T>(),
                 f.weight,
                 f.bias,
                 f.scale,
                 f.shift,
                 f.cols > 0 ? f.x.numel() / f.cols : 0,
                 f.cols,
                 f.rows_per_batch,
                 batch_stride(f.scale),
                 batch_stride(f.shift),
                 A(f.eps),
                 data_or_null<A>(f.mean),
                 data_or_null<A>(f.rstd)};
    run_row_norm<true>("layer_norm", f.x.device, n);
  });
}

void backward(const LayerNormBackward& b) {
  as_float(b.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = real_t<T>;
    RowNormGradient<T> n{
        b.x.as<T>(), b.dy.as<T>(),     data_or_null<const T>(b.dsum), b.dx.as<T>(),   b.weight,      b.bias, b.scale, b.cols > 0 ? b.x.numel() / b.cols : 0,
        b.cols,      b.rows_per_batch, batch_stride(b.scale),         b.mean.as<A>(), b.rstd.as<A>()};
    ColumnTotals totals{};
    totals.dweight = b.dweight, totals.dbias = b.dbias, totals.dscale = b.dscale, totals.dshift = b.dshift;
    run_row_norm_backward("layer_norm_backward", b.x.device, n, totals);
  });
}

SF_KERNEL(layer_norm_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(layer_norm_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
