#include "scaffolding/models/autoencoders/cogvideox_blocks.h"

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/models/parts/resnet.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/fused/spatial_norm/spatial_norm.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr double kEps = 1e-6;  // of norms without a setting

// Videos [B, C, T, H, W] as rows of channels [B, T, H, W, C], views where they are channels-last, and back.
Tensor to_rows(const Tensor& video) { return video.permute({0, 2, 3, 4, 1}); }
Tensor from_rows(const Tensor& rows) { return rows.permute({0, 4, 1, 2, 3}); }

// Behind each other in time, channels-last.
Tensor in_sequence(const Tensors& videos) {
  Tensors rows;
  for (auto& video : videos) rows.push_back(to_rows(video));
  return from_rows(cat(rows, 1));
}

// f of all frames as a batch of pictures.
template <class F> Tensor by_frame(const Tensor& video, const F& f) {
  const Tensor pictures = video.permute({0, 2, 1, 3, 4}).flatten(0, 1);
  return unflatten(f(pictures), 0, {video.size(0), video.size(2)}).permute({0, 2, 1, 3, 4});
}

// Each frame twice.
Tensor doubled(const Tensor& video) {
  const Tensor rows = to_rows(video);
  Shape sizes = rows.shape();
  sizes.insert(2, 2);
  return from_rows(rows.unsqueeze(2).expand(sizes).flatten(1, 2));
}

// The first frame of an odd number stands for itself: it has no neighbour in the latents.
bool first_apart(int64_t frames) { return frames > 1 && frames % 2 == 1; }

// A chunk's way through convolutions: hands each one its frames of the chunk before and keeps those for the next one.
class Chunk {
 public:
  explicit Chunk(const Tensors& before) : before_(before) {}
  Tensor through(const CogVideoXCausalConv3d& conv, Tensor x) {
    return kept(conv(std::move(x), before_.empty() ? Tensor() : before_.at(at_++)));
  }
  // A part of n convolutions. call(its frames) -> {result, frames...}
  template <class F> Tensor through(int64_t n, const F& call) {
    Tensors own;
    for (int64_t i = 0; i < n && !before_.empty(); ++i) own.push_back(before_.at(at_++));
    return kept(call(own));
  }
  Tensors with(const Tensor& y) const {
    Tensors all{y};
    all.insert(all.end(), after_.begin(), after_.end());
    return all;
  }

 private:
  Tensor kept(const Tensors& result) {
    after_.insert(after_.end(), result.begin() + 1, result.end());
    return result[0];
  }
  const Tensors& before_;
  size_t at_ = 0;
  Tensors after_;
};

template <class Resnets> Tensor through_all(Chunk& chunk, const Resnets& resnets, Tensor x, const Tensor& zq) {
  for (auto& resnet : resnets)
    x = chunk.through(CogVideoXResnetBlock3D::kCaches,
                      [&](const Tensors& before) -> Tensors { return resnet(x, zq, before); });
  return x;
}

template <class Block> int64_t caches_of(const Block& block) {
  return int64_t(block.resnets.size()) * CogVideoXResnetBlock3D::kCaches;
}

template <class Block>
void fill(Block& block, int64_t in_channels, int64_t out_channels, const CogVideoXBlockOptions& o) {
  for (int64_t i = 0; i < o.num_layers; ++i)
    block.resnets.emplace_back(i == 0 ? in_channels : out_channels, out_channels, o);
}

// compute(x, zq, before) of tensors in one list, as checkpointing has them; zq may be absent.
template <class F> auto of_list(bool with_zq, const F& compute) {
  return [with_zq, compute](const Tensors& in) -> Tensors {
    const size_t at = with_zq ? 2 : 1;
    return compute(in[0], with_zq ? in[1] : Tensor(), Tensors(in.begin() + int64_t(at), in.end()));
  };
}
Tensors as_list(const Tensor& x, const Tensor& zq, const Tensors& before) {
  Tensors all{x};
  if (zq) all.push_back(zq);
  all.insert(all.end(), before.begin(), before.end());
  return all;
}

CogVideoXBlockOptions block_options(const CogVideoXHalfOptions& o, int64_t num_layers) {
  return {.num_layers = num_layers, .groups = o.norm_num_groups, .eps = o.norm_eps};
}

// The kernels are at their best between channels-last videos; callers get back the layout that they came with.
Tensor to_callers_layout(const Tensor& y, const Tensor& x) { return x.is_contiguous() ? y.contiguous() : y; }

}  // namespace

// ---- convolutions and norms

CogVideoXCausalConv3d::CogVideoXCausalConv3d(int64_t in_channels, int64_t out_channels, int64_t kernel_size)
    : conv(in_channels, out_channels, kernel_size,
           {.padding = Shape{0, (kernel_size - 1) / 2, (kernel_size - 1) / 2}}) {}

Tensors CogVideoXCausalConv3d::forward(Tensor x, const Tensor& before) const {
  const int64_t seen = conv.kernel_size[0] - 1;
  if (seen == 0) return {conv(x)};
  Tensors parts;
  if (before) parts.push_back(before);
  else parts.assign(size_t(seen), x.narrow(2, 0, 1));
  parts.push_back(std::move(x));
  const Tensor all = in_sequence(parts);
  parts.clear();
  return {conv(all), all.narrow(2, all.size(2) - seen, seen).clone()};
}

CogVideoXSpatialNorm3D::CogVideoXSpatialNorm3D(int64_t channels, int64_t zq_channels, int64_t groups)
    : norm_layer(groups, channels, kEps), conv_y(zq_channels, channels, 1), conv_b(zq_channels, channels, 1) {}

Tensor CogVideoXSpatialNorm3D::forward(const Tensor& f, const Tensor& zq) const {
  // A convolution of one pixel gives the same before numbers are repeated, for fewer of them.
  auto repeated = [&](const Tensor& t) { return repeat_latents(t, f.size(2), f.size(3), f.size(4)); };
  Tensor y = norm_layer(f);  // one large tensor beside it at a time
  y = y * repeated(conv_y(zq)[0]);
  y = y + repeated(conv_b(zq)[0]);
  return y;
}

Tensor CogVideoXSpatialNorm3D::with_silu(const Tensor& f, const Tensor& zq) const {
  if (!is_plain(*this) || !is_plain(norm_layer)) return silu((*this)(f, zq));
  const nn::WeightsHere here(*this);
  return spatial_norm_silu(f, norm_layer.num_groups, norm_layer.weight, norm_layer.bias, conv_y(zq)[0], conv_b(zq)[0],
                           norm_layer.eps);
}

// ---- residual blocks

CogVideoXResnetBlock3D::CogVideoXResnetBlock3D(int64_t in_channels, int64_t out_channels,
                                               const CogVideoXBlockOptions& o)
    : conv1(in_channels, out_channels, 3), conv2(out_channels, out_channels, 3) {
  if (o.zq_channels) {
    spatial_norm1.emplace(in_channels, *o.zq_channels, o.groups);
    spatial_norm2.emplace(out_channels, *o.zq_channels, o.groups);
  } else {
    group_norm1.emplace(o.groups, in_channels, o.eps);
    group_norm2.emplace(o.groups, out_channels, o.eps);
  }
  if (in_channels != out_channels) conv_shortcut.emplace(in_channels, out_channels, 1);
}

void CogVideoXResnetBlock3D::visit(nn::Visitor& v) {
  const char* names = "norm1, norm2, conv1, conv2, conv_shortcut";
  if (spatial_norm1) visit_members(v, names, spatial_norm1, spatial_norm2, conv1, conv2, conv_shortcut);
  else visit_members(v, names, group_norm1, group_norm2, conv1, conv2, conv_shortcut);
}

Tensors CogVideoXResnetBlock3D::forward(const Tensor& x, const Tensor& zq, const Tensors& before) const {
  Chunk chunk(before);
  auto normed = [&](const auto& group_norm, const auto& spatial_norm, Tensor t) {
    return spatial_norm ? spatial_norm->with_silu(t, zq) : norm_silu(*group_norm, t);
  };
  Tensor h = chunk.through(conv1, normed(group_norm1, spatial_norm1, x));
  h = chunk.through(conv2, normed(group_norm2, spatial_norm2, std::move(h)));
  return chunk.with(h + (conv_shortcut ? (*conv_shortcut)(x) : x));
}

CogVideoXDownsample3D::CogVideoXDownsample3D(int64_t channels, bool time)
    : conv(channels, channels, 3, {.stride = 2}), compress_time(time) {}

Tensor CogVideoXDownsample3D::forward(const Tensor& video) const {
  Tensor x = video;
  if (compress_time && x.size(2) > 1) {
    auto means = [](const Tensor& t) { return avg_pool3d(t, {2, 1, 1}); };
    x = first_apart(x.size(2)) ? in_sequence({x.narrow(2, 0, 1), means(x.narrow(2, 1, x.size(2) - 1))}) : means(x);
  }
  return by_frame(x, [this](const Tensor& pictures) { return conv(pad(pictures, {0, 1, 0, 1})); });
}

CogVideoXUpsample3D::CogVideoXUpsample3D(int64_t channels, bool time)
    : conv(channels, channels, 3, {.padding = 1}), compress_time(time) {}

// What is done to a frame is the same for its repetition.
Tensor CogVideoXUpsample3D::forward(const Tensor& video) const {
  const Tensor x = by_frame(video, [this](const Tensor& pictures) {
    return is_plain(conv) ? upsample_conv2d(pictures, conv.weight, conv.bias)
                          : conv(interpolate(pictures, {}, Floats{2, 2}));
  });
  const int64_t frames = x.size(2);
  if (!compress_time || frames == 1) return x;
  return first_apart(frames) ? in_sequence({x.narrow(2, 0, 1), doubled(x.narrow(2, 1, frames - 1))}) : doubled(x);
}

// ---- blocks

CogVideoXDownBlock3D::CogVideoXDownBlock3D(int64_t in_channels, int64_t out_channels, const CogVideoXBlockOptions& o) {
  fill(*this, in_channels, out_channels, o);
  if (o.resize) downsamplers.emplace().emplace_back(out_channels, o.compress_time);
}

Tensors CogVideoXDownBlock3D::forward(Tensor hidden_states, const Tensors& before) const {
  auto compute = [this](Tensor in, const Tensor& zq, const Tensors& frames) -> Tensors {
    Chunk chunk(frames);
    const Tensor x = through_all(chunk, resnets, std::move(in), zq);
    return chunk.with(downsamplers ? (*downsamplers)[0](x) : x);
  };
  if (!gradient_checkpointing) return compute(std::move(hidden_states), Tensor(), before);
  return run(of_list(false, compute), as_list(hidden_states, {}, before));
}

CogVideoXMidBlock3D::CogVideoXMidBlock3D(int64_t channels, const CogVideoXBlockOptions& o) {
  fill(*this, channels, channels, o);
}

Tensors CogVideoXMidBlock3D::forward(Tensor hidden_states, const Tensor& zq, const Tensors& before) const {
  auto compute = [this](Tensor in, const Tensor& latents, const Tensors& frames) -> Tensors {
    Chunk chunk(frames);
    const Tensor x = through_all(chunk, resnets, std::move(in), latents);
    return chunk.with(x);
  };
  if (!gradient_checkpointing) return compute(std::move(hidden_states), zq, before);
  return run(of_list(bool(zq), compute), as_list(hidden_states, zq, before));
}

CogVideoXUpBlock3D::CogVideoXUpBlock3D(int64_t in_channels, int64_t out_channels, const CogVideoXBlockOptions& o) {
  fill(*this, in_channels, out_channels, o);
  if (o.resize) upsamplers.emplace().emplace_back(out_channels, o.compress_time);
}

Tensors CogVideoXUpBlock3D::forward(Tensor hidden_states, const Tensor& zq, const Tensors& before) const {
  auto compute = [this](Tensor in, const Tensor& latents, const Tensors& frames) -> Tensors {
    Chunk chunk(frames);
    const Tensor x = through_all(chunk, resnets, std::move(in), latents);
    return chunk.with(upsamplers ? (*upsamplers)[0](x) : x);
  };
  if (!gradient_checkpointing) return compute(std::move(hidden_states), zq, before);
  return run(of_list(true, compute), as_list(hidden_states, zq, before));
}

// ---- the halves

CogVideoXEncoder3D::CogVideoXEncoder3D(const CogVideoXHalfOptions& o)
    : conv_in(o.in_channels, o.block_out_channels.front(), 3),
      mid_block(o.block_out_channels.back(), block_options(o, 2)),
      norm_out(o.norm_num_groups, o.block_out_channels.back(), kEps),
      conv_out(o.block_out_channels.back(), o.out_channels, 3) {
  int64_t channels = o.block_out_channels.front();
  const int64_t blocks = int64_t(o.block_out_channels.size());
  for (int64_t i = 0; i < blocks; ++i) {
    CogVideoXBlockOptions block = block_options(o, o.layers_per_block);
    block.resize = i + 1 < blocks, block.compress_time = i < o.compressing_blocks;
    down_blocks.emplace_back(channels, o.block_out_channels[size_t(i)], block);
    channels = o.block_out_channels[size_t(i)];
  }
}

Tensors CogVideoXEncoder3D::forward(const Tensor& sample, const Tensors& before) const {
  Chunk chunk(before);
  Tensor x = chunk.through(conv_in, sample.contiguous(MemoryFormat::ChannelsLast));
  for (auto& block : down_blocks)
    x = chunk.through(caches_of(block), [&](const Tensors& own) -> Tensors { return block(std::move(x), own); });
  x = chunk.through(caches_of(mid_block),
                    [&](const Tensors& own) -> Tensors { return mid_block(std::move(x), Tensor(), own); });
  x = chunk.through(conv_out, norm_silu(norm_out, x));
  return chunk.with(to_callers_layout(x, sample));
}

CogVideoXDecoder3D::CogVideoXDecoder3D(const CogVideoXHalfOptions& o)
    : conv_in(o.in_channels, o.block_out_channels.back(), 3),
      mid_block(o.block_out_channels.back(),
                {.num_layers = 2, .groups = o.norm_num_groups, .zq_channels = o.in_channels}),
      norm_out(o.block_out_channels.front(), o.in_channels, o.norm_num_groups),
      conv_out(o.block_out_channels.front(), o.out_channels, 3) {
  int64_t channels = o.block_out_channels.back();
  const int64_t blocks = int64_t(o.block_out_channels.size());
  for (int64_t i = 0; i < blocks; ++i) {
    CogVideoXBlockOptions block = block_options(o, o.layers_per_block + 1);
    block.zq_channels = o.in_channels;
    block.resize = i + 1 < blocks, block.compress_time = i < o.compressing_blocks;
    const int64_t wanted = o.block_out_channels[size_t(blocks - 1 - i)];
    up_blocks.emplace_back(channels, wanted, block);
    channels = wanted;
  }
}

Tensors CogVideoXDecoder3D::forward(const Tensor& sample, const Tensors& before) const {
  Chunk chunk(before);
  const Tensor zq = sample.contiguous(MemoryFormat::ChannelsLast);
  Tensor x = chunk.through(conv_in, zq);
  x = chunk.through(caches_of(mid_block),
                    [&](const Tensors& own) -> Tensors { return mid_block(std::move(x), zq, own); });
  for (auto& block : up_blocks)
    x = chunk.through(caches_of(block), [&](const Tensors& own) -> Tensors { return block(std::move(x), zq, own); });
  x = norm_out.with_silu(x, zq);
  x = chunk.through(conv_out, std::move(x));
  return chunk.with(to_callers_layout(x, sample));
}

}  // namespace sf::models
