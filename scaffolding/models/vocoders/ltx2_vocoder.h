// LTX2Vocoder: sound of mel spectrograms, by transposed convolutions with residual blocks of several kernel sizes
// behind each (HiFi-GAN, Kong et al. 2020, arXiv 2010.05646; with anti-aliased periodic activations BigVGAN, Lee et al.
// 2023, arXiv 2206.04658). LTX-2.0's vocoder, and either half of LTX-2.3's.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/vocoders/anti_aliased.h"
#include "scaffolding/nn/conv.h"

namespace sf::models {

struct LTX2VocoderConfig {
  int64_t in_channels = 128, hidden_channels = 1024, out_channels = 2;
  std::vector<int64_t> upsample_kernel_sizes{16, 15, 8, 4, 4}, upsample_factors{6, 5, 2, 2, 2};
  std::vector<int64_t> resnet_kernel_sizes{3, 7, 11};
  io::Object resnet_dilations = default_dilations();  // a list of whole numbers for each kernel size
  std::string act_fn = "leaky_relu";                  // or "snakebeta", "snake"
  double leaky_relu_negative_slope = 0.1;
  bool antialias = false;  // the periodic activations of residual blocks; the last one always is
  int64_t antialias_ratio = 2, antialias_kernel_size = 12;
  std::optional<std::string> final_act_fn = "tanh";  // or "clamp", to [-1, 1], or absent
  bool final_bias = true;
  int64_t output_sampling_rate = 24000;
  io::Fields fields();
  static io::Object default_dilations();
};

enum class VocoderAct : uint8_t { LeakyReLU, Snake, SnakeBeta };

struct VocoderActOptions {
  VocoderAct kind;
  double negative_slope;
  bool antialias;
  int64_t ratio, kernel_size;  // of the filters
};

// The activation of a residual block. One class, because each kind stands under one name: keys alpha and beta, those of
// AntiAliasAct1d, or none.
struct VocoderActivation : nn::Module {
  double negative_slope;
  std::optional<SnakeBeta> snake;
  std::optional<AntiAliasAct1d> filtered;
  const char* type() const override { return "VocoderActivation"; }
  void visit(nn::Visitor& v) override;
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }
  VocoderActivation(int64_t channels, const VocoderActOptions& options);
  Tensor forward(const Tensor& x) const;

 protected:
  Value forward_tensors(const nn::Values& args) override { return call_tensors(*this, args); }
};

// Activation, dilated convolution, activation, convolution, beside a shortcut, for each dilation: [B, C, L].
struct VocoderResBlock : nn::Module {
  nn::ModuleList<nn::Conv1d> convs1;
  nn::ModuleList<VocoderActivation> acts1;
  nn::ModuleList<nn::Conv1d> convs2;
  nn::ModuleList<VocoderActivation> acts2;
  SF_MODULE(VocoderResBlock, convs1, acts1, convs2, acts2)
  VocoderResBlock(int64_t channels, int64_t kernel_size, const std::vector<int64_t>& dilations,
                  const VocoderActOptions& options);
  Tensor forward(Tensor x) const;
};

struct LTX2Vocoder : ConfiguredModel<LTX2VocoderConfig> {
  static constexpr const char* kName = "LTX2Vocoder";
  nn::Conv1d conv_in;
  nn::ModuleList<nn::ConvTranspose1d> upsamplers;
  nn::ModuleList<VocoderResBlock> resnets;  // for each upsampler those of all kernel sizes, whose mean goes on
  VocoderActivation act_out;
  nn::Conv1d conv_out;
  SF_MODULE(LTX2Vocoder, conv_in, upsamplers, resnets, act_out, conv_out)
  explicit LTX2Vocoder(Config config = {});
  const char* library() const override { return "ltx2"; }  // a module of diffusers, as its index has it
  // [B, channels, frames, mel bins], or with time_last [B, channels, mel bins, frames], where channels * mel bins are
  // in_channels -> [B, out_channels, upsample_factor() * frames].
  Tensor forward(const Tensor& hidden_states, bool time_last = false) const;
  int64_t upsample_factor() const;  // samples of a frame
};

}  // namespace sf::models
