#include "scaffolding/ops/layer_norm/row_norm.cuh"
#include "scaffolding/ops/rms_norm/kernel.h"

namespace sf::cuda {
namespace {

void forward(const RmsNormForward& f) {
  as_float(f.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = real_t<T>;
    RowNorm<T> n{f.x.as<T>(),
                 data_or_null<const T>(f.residual),
                 data_or_null<T>(f.sum),
                 f.y.as<T>(),
                 f.weight,
                 {},
                 f.scale,
                 f.shift,
                 f.cols > 0 ? f.x.numel() / f.cols : 0,
                 f.cols,
                 f.rows_per_batch,
                 batch_stride(f.scale),
                 batch_stride(f.shift),
                 A(f.eps),
                 nullptr,
                 data_or_null<A>(f.rstd)};
    run_row_norm<false>("rms_norm", f.x.device, n);
  });
}

void backward(const RmsNormBackward& b) {
  as_float(b.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = real_t<T>;
    RowNormGradient<T> n{
        b.x.as<T>(), b.dy.as<T>(),     data_or_null<const T>(b.dsum), b.dx.as<T>(), b.weight,      {}, b.scale, b.cols > 0 ? b.x.numel() / b.cols : 0,
        b.cols,      b.rows_per_batch, batch_stride(b.scale),         nullptr,      b.rstd.as<A>()};
    ColumnTotals totals{};
    totals.dweight = b.dweight, totals.dscale = b.dscale, totals.dshift = b.dshift;
    run_row_norm_backward("rms_norm_backward", b.x.device, n, totals);
  });
}

SF_KERNEL(rms_norm_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(rms_norm_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
