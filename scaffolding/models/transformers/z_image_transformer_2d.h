// ZImageTransformer2DModel: Z-Image's denoiser (Z-Image team 2025, arXiv 2511.22699), under diffusers' names and keys.
// Patches and caption are refined by themselves first, and are one sequence of tokens from then on. Either is as long
// as a multiple of 32, filled up with a token that was learned.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/kept_table.h"
#include "scaffolding/models/parts/norm.h"
#include "scaffolding/nn/activation.h"

namespace sf::models {

struct ZImageTransformer2DConfig {
  std::vector<int64_t> all_patch_size{2}, all_f_patch_size{1};  // pairs, each with layers of its own at both ends
  int64_t in_channels = 16, dim = 3840, n_layers = 30, n_refiner_layers = 2, n_heads = 30;
  int64_t n_kv_heads = 30;  // which nothing looks at, here or there
  double norm_eps = 1e-5;
  bool qk_norm = true;
  int64_t cap_feat_dim = 2560;             // channels of the caption
  std::optional<int64_t> siglip_feat_dim;  // of models that are shown pictures: not here
  double rope_theta = 256, t_scale = 1000;
  std::vector<int64_t> axes_dims{32, 48, 48};      // channels of a head for frame, row and column
  std::vector<int64_t> axes_lens{1024, 512, 512};  // places that there are for each
  io::Fields fields();
};

struct ZImageTimestepEmbedder : nn::Module {
  nn::ModuleTuple<nn::Linear, nn::SiLU, nn::Linear> mlp;
  SF_MODULE(ZImageTimestepEmbedder, mlp)
  explicit ZImageTimestepEmbedder(int64_t out_size);
  Tensor forward(const Tensor& t) const;  // [B] -> [B, out_size]
};

struct ZImageAttention : nn::Module, PackedPart {
  int64_t heads;
  std::optional<nn::RMSNorm> norm_q, norm_k;  // of each head
  nn::Linear to_q, to_k, to_v;
  nn::ModuleTuple<nn::Linear, nn::Dropout> to_out;
  SF_MODULE(ZImageAttention, norm_q, norm_k, to_q, to_k, to_v, to_out)
  explicit ZImageAttention(const ZImageTransformer2DConfig& c);
  // hidden_states[B, N, dim]; cosines and sines as RotaryPositions has them; mask[B, 1, 1, N]: true for tokens that are
  // seen, absent: all of them.
  Tensor forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin, const Tensor& mask = {}) const;
  bool pack() override;
};

struct ZImageFeedForward : nn::Module {
  nn::Linear w1, w2, w3;  // gate, down, up
  SF_MODULE(ZImageFeedForward, w1, w2, w3)
  ZImageFeedForward(int64_t dim, int64_t hidden_dim);
  Tensor forward(const Tensor& hidden_states) const;
};

struct ZImageTransformerBlock : CheckpointedModule {
  ZImageAttention attention;
  ZImageFeedForward feed_forward;
  nn::RMSNorm attention_norm1, ffn_norm1, attention_norm2, ffn_norm2;
  std::optional<nn::ModuleTuple<nn::Linear>> adaLN_modulation;  // scale and gate of the attention, then of the rest
  SF_MODULE(ZImageTransformerBlock, attention, feed_forward, attention_norm1, ffn_norm1, attention_norm2, ffn_norm2,
            adaLN_modulation)
  ZImageTransformerBlock(const ZImageTransformer2DConfig& c, bool modulation);
  // temb[B, min(dim, 256)] for modulation; the others as ZImageAttention takes them.
  Tensor forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin, const Tensor& mask,
                 const Tensor& temb) const;
};

struct ZImageFinalLayer : nn::Module {
  nn::LayerNorm norm_final;
  nn::Linear linear;
  nn::ModuleTuple<nn::SiLU, nn::Linear> adaLN_modulation;
  SF_MODULE(ZImageFinalLayer, norm_final, linear, adaLN_modulation)
  ZImageFinalLayer(int64_t hidden_size, int64_t out_channels);
  Tensor forward(const Tensor& hidden_states, const Tensor& temb) const;
};

// Modules by a size of patches: "2-1" is 2 rows and columns of 1 frame.
template <class T> class ByPatchSize : public nn::Module {
 public:
  template <class... A> void add(int64_t patch_size, int64_t f_patch_size, A&&... a) {
    items_.push_back({patch_size, f_patch_size, std::make_shared<T>(std::forward<A>(a)...)});
  }
  const T* find(int64_t patch_size, int64_t f_patch_size) const {
    for (auto& i : items_)
      if (i.patch_size == patch_size && i.f_patch_size == f_patch_size) return i.module.get();
    return nullptr;
  }
  const char* type() const override { return "ModuleDict"; }
  void visit(nn::Visitor& v) override {
    for (auto& i : items_)
      v.module(std::to_string(i.patch_size) + "-" + std::to_string(i.f_patch_size), i.module.get());
  }

 private:
  struct Item {
    int64_t patch_size, f_patch_size;
    std::shared_ptr<T> module;
  };
  std::vector<Item> items_;
};

struct ZImageTransformer2DModel : ConfiguredModel<ZImageTransformer2DConfig> {
  static constexpr const char* kName = "ZImageTransformer2DModel";
  static constexpr int64_t kMultiple = 32;  // of tokens: patches, and the caption's
  ByPatchSize<nn::Linear> all_x_embedder;
  ByPatchSize<ZImageFinalLayer> all_final_layer;
  nn::ModuleList<ZImageTransformerBlock> noise_refiner, context_refiner;
  ZImageTimestepEmbedder t_embedder;
  nn::ModuleTuple<nn::RMSNorm, nn::Linear> cap_embedder;
  Tensor x_pad_token, cap_pad_token;  // [1, dim]
  nn::ModuleList<ZImageTransformerBlock> layers;
  SF_MODULE(ZImageTransformer2DModel, x_pad_token, cap_pad_token, all_x_embedder, all_final_layer, noise_refiner,
            context_refiner, t_embedder, cap_embedder, layers)
  explicit ZImageTransformer2DModel(Config config = {});
  // x[B, in_channels, F, H, W], or a picture's [B, in_channels, H, W]; t[] or [B], from 0, noise, to 1; cap_feats[B, M,
  // cap_feat_dim], of which cap_mask[B, M] has 1 for a caption's tokens and 0 behind them (absent: all are). Nothing is
  // read from the device. What x becomes: from noise to signal, of x's shape.
  Tensor forward(const Tensor& x, const Tensor& t, const Tensor& cap_feats, const Tensor& cap_mask = {},
                 int64_t patch_size = 2, int64_t f_patch_size = 1) const;

 private:
  struct Grid {
    int64_t frames, height, width;  // in patches
    int64_t patches() const { return frames * height * width; }
    int64_t tokens() const { return (patches() + kMultiple - 1) / kMultiple * kMultiple; }
  };
  Tensor axis_table(size_t axis, int64_t length) const;
  Tensor rows_and_columns(const Grid& grid) const;
  Tensor positions(const Grid& grid, int64_t cap_tokens, const Tensor& cap_lengths, const Tensor& like) const;
  KeptTable axis_, grid_, joint_;
};

}  // namespace sf::models
