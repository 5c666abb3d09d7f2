#include "scaffolding/diffusion/slerp.h"

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Tensor slerp(const Tensor& from, const Tensor& to, double t, std::optional<int64_t> dim) {
  check_defined("slerp", "from", from);
  check_defined("slerp", "to", to);
  SF_CHECK(from.shape() == to.shape() && from.ndim() > 0,
           "slerp: from and to must have one shape with a dimension, got ", from.shape(), " and ", to.shape());
  SF_CHECK_AS(TypeError, is_floating(from.dtype()) && from.dtype() == to.dtype(),
              "slerp: from and to must have one floating dtype, got ", from.dtype(), " and ", to.dtype());
  if (!dim) return slerp(from.reshape({from.numel()}), to.reshape({to.numel()}), t, 0).reshape(from.shape());
  Tensor a = from.to(kFloat32), b = to.to(kFloat32);
  auto length = [&](const Tensor& x) { return clamp(sqrt(sum(x * x, {*dim}, true)), 1e-12, std::nullopt); };
  Tensor length_a = length(a), length_b = length(b);
  Tensor unit_a = a / length_a, unit_b = b / length_b;
  Tensor cosine = clamp(sum(unit_a * unit_b, {*dim}, true), -1, 1);
  // The part of one that is across the other, whose digits near 0 are those that acos would lose.
  Tensor across = unit_b - unit_a * cosine;
  Tensor sine = sqrt(sum(across * across, {*dim}, true));
  Tensor angle = atan2(sine, cosine);
  Tensor straight = lt(sine, full_like(sine, 1e-3));
  Tensor safe = where(straight, ones_like(sine), sine);
  Tensor weight_a = where(straight, full_like(sine, 1 - t), sin(angle * (1 - t)) / safe),
         weight_b = where(straight, full_like(sine, t), sin(angle * t) / safe);
  return ((unit_a * weight_a + unit_b * weight_b) * (length_a * (1 - t) + length_b * t)).to(from.dtype());
}

}  // namespace sf::diffusion
