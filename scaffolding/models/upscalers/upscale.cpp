#include "scaffolding/models/upscalers/upscale.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr const char* kWho = "upscale";

// Where one of the tiles along a side begins and ends; all are nearly of one size.
struct Span {
  int64_t begin, end;
};
std::vector<Span> spans(int64_t size, int64_t tile, int64_t multiple) {
  const int64_t count = tile == 0 ? 1 : (size + tile - 1) / tile;
  std::vector<Span> out;
  for (int64_t i = 0, begin = 0; i < count && begin < size; ++i) {
    const int64_t wanted = (size * (i + 1) / count + multiple - 1) / multiple * multiple,
                  end = i + 1 == count ? size : std::min(size, wanted);
    if (end > begin) out.push_back({begin, end});
    begin = end;
  }
  return out;
}

// What a tile sees: itself and the overlap, within the picture; it begins where the model's blocks of pixels do.
Span seen(const Span& tile, int64_t size, int64_t overlap, int64_t multiple) {
  const int64_t around = (overlap + multiple - 1) / multiple * multiple;
  return {std::max<int64_t>(0, tile.begin - around), std::min(size, tile.end + around)};
}

}  // namespace

const UpscalingModel& upscaling_model(const Model& model) {
  auto* found = dynamic_cast<const UpscalingModel*>(&model);
  SF_CHECK(found, kWho, ": needs a model that enlarges pictures (RRDBNet, SRVGGNetCompact), got a ", model.type());
  return *found;
}

Tensor upscale_tensor(Model& model, const Tensor& x, const UpscaleOptions& o) {
  const UpscalingModel& network = upscaling_model(model);
  check_defined(kWho, "x", x);
  SF_CHECK(x.ndim() == 4 && x.size(1) == network.input_channels() && x.numel() > 0, kWho, ": x must be [B, ",
           network.input_channels(), ", H, W], got ", x.shape());
  SF_CHECK(o.tile >= 0 && (o.tile == 0 || o.tile >= 16), kWho,
           ": tile must be 0 (the whole picture) or at least 16, got ", o.tile);
  SF_CHECK(o.overlap >= 0 && o.overlap <= 1 << 20, kWho, ": overlap must be at least 0, got ", o.overlap);
  const int64_t factor = network.upscale_factor(), multiple = network.multiple(), height = x.size(2), width = x.size(3);
  SF_CHECK(height <= (int64_t(1) << 31) / factor && width <= (int64_t(1) << 31) / factor, kWho, ": x ", x.shape(),
           " is too large to be enlarged by ", factor);
  autograd::NoGrad off;
  const Shape sizes{x.size(0), network.output_channels(), height * factor, width * factor};
  Tensor out = empty_strided(sizes, channels_last_strides(sizes), kFloat32, Device());
  const auto down = spans(height, o.tile, multiple), across = spans(width, o.tile, multiple);
  const int64_t tiles = x.size(0) * int64_t(down.size() * across.size());
  int64_t done = 0;
  for (int64_t n = 0; n < x.size(0); ++n)
    for (const Span& row : down)
      for (const Span& column : across) {
        const Span rows = seen(row, height, o.overlap, multiple), columns = seen(column, width, o.overlap, multiple);
        const Tensor tile = x.narrow(0, n, 1)
                                .slice(2, rows.begin, rows.end)
                                .slice(3, columns.begin, columns.end)
                                .to(model.device())
                                .to(model.dtype());
        const Tensor y = network.upscale(tile)
                             .slice(2, factor * (row.begin - rows.begin), factor * (row.end - rows.begin))
                             .slice(3, factor * (column.begin - columns.begin), factor * (column.end - columns.begin));
        out.narrow(0, n, 1)
            .slice(2, factor * row.begin, factor * row.end)
            .slice(3, factor * column.begin, factor * column.end)
            .copy_(y);
        ++done;
        if (o.progress) o.progress(done, tiles);
      }
  return out;
}

namespace {

// uint8 [C, H, W] -> [1, C, H, W] in [0, 1], and back.
Tensor to_unit(const Tensor& picture) { return picture.unsqueeze(0).to(kFloat32) / 255; }
Tensor to_bytes(const Tensor& unit) { return round(clamp(unit, 0, 1) * 255).to(kUInt8).squeeze(0); }

}  // namespace

Tensor upscale_picture(Model& model, const Tensor& picture, const UpscaleOptions& o) {
  const UpscalingModel& network = upscaling_model(model);
  check_defined(kWho, "picture", picture);
  SF_CHECK(picture.dtype() == kUInt8 && picture.ndim() == 3 && picture.size(0) >= 1 && picture.size(0) <= 4 &&
               picture.numel() > 0,
           kWho, ": picture must be uint8 [C, H, W] with 1 to 4 channels, got ", picture.dtype(), picture.shape());
  const int64_t in = network.input_channels();
  SF_CHECK(in == network.output_channels() && (in == 1 || in == 3), kWho,
           ": pictures have 1 or 3 channels, and this model takes ", in, " and gives ", network.output_channels());
  const bool has_alpha = picture.size(0) % 2 == 0;
  const int64_t colours = picture.size(0) - has_alpha;
  UpscaleOptions each = o;
  int64_t part = 0;
  const int64_t parts = (in == 1 ? colours : 1) + has_alpha;
  if (o.progress) each.progress = [&](int64_t done, int64_t tiles) { o.progress(part * tiles + done, parts * tiles); };
  // One channel, by a model of any: grey is red, green and blue alike, and their mean comes out.
  auto grey = [&](int64_t c) {
    const Tensor x = to_unit(picture.narrow(0, c, 1));
    Tensor y = upscale_tensor(model, in == 1 ? x : x.expand({1, in, x.size(2), x.size(3)}), each);
    ++part;
    return to_bytes(in == 1 ? y : y.mean(Shape{1}, true));
  };
  Tensors channels;
  if (colours == 3 && in == 3) {
    channels.push_back(to_bytes(upscale_tensor(model, to_unit(picture.narrow(0, 0, 3)), each)));
    ++part;
  } else {
    for (int64_t c = 0; c < colours; ++c) channels.push_back(grey(c));
  }
  if (has_alpha) channels.push_back(grey(colours));
  return channels.size() == 1 ? channels[0] : cat(channels, 0);
}

}  // namespace sf::models
