#include "scaffolding/nn/conv_strips.h"

#include <algorithm>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/view/view.h"

namespace sf::nn {

// Numbers of a kernel that are made at once. What a product prepares for each strip anew (Winograd's input) costs a
// twentieth of its multiply-adds with this many.
static constexpr int64_t kStripNumbers = int64_t(2) << 20;

Tensor convolve_in_strips(const Conv2d& conv, const Tensor& input,
                          const std::function<Tensor(int64_t first, int64_t channels)>& part) {
  const int64_t numbers = conv.weight.numel(), all = conv.out_channels;
  const bool records = autograd::any_requires_grad({input, conv.bias});
  if (records || !input.device().is_cpu() || conv.groups != 1 || numbers <= kStripNumbers)
    return conv.convolve(input, part(0, all), conv.bias);
  const int64_t strips = (numbers + kStripNumbers - 1) / kStripNumbers,
                most = ((all + strips - 1) / strips + 31) / 32 * 32;
  Tensor out;
  for (int64_t c0 = 0; c0 < all; c0 += most) {
    const int64_t channels = std::min(most, all - c0);
    const Tensor y =
        conv.convolve(input, part(c0, channels), conv.bias ? conv.bias.narrow(0, c0, channels) : conv.bias);
    const int64_t at = y.ndim() - 3;
    if (!out) {
      Shape sizes = y.shape();
      sizes[at] = all;
      out = empty(sizes, y.dtype(), y.device());
      if (y.ndim() == 4) out = out.contiguous(MemoryFormat::ChannelsLast);
    }
    out.narrow(at, c0, channels).copy_(y);
  }
  return out;
}

}  // namespace sf::nn
