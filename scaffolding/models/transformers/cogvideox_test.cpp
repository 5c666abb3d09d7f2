#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/transformers/cogvideox_transformer_3d.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

CogVideoXTransformer3DConfig tiny() {
  CogVideoXTransformer3DConfig c;
  c.num_attention_heads = 2, c.attention_head_dim = 16, c.in_channels = 4, c.out_channels = 4;
  c.time_embed_dim = 8, c.text_embed_dim = 10, c.num_layers = 2;
  c.sample_width = 8, c.sample_height = 4, c.sample_frames = 9, c.max_text_seq_length = 5;
  return c;
}

// What a model is made of that steers the video between norm1 and attention: fusers that its blocks call, under a name
// of its own.
struct SteeredBlock : CogVideoXBlock {
  std::shared_ptr<nn::Linear> fuser;
  SF_MODULE(SteeredBlock, norm1, attn1, norm2, ff)
  explicit SteeredBlock(const CogVideoXTransformer3DConfig& c)
      : CogVideoXBlock(c), fuser(std::make_shared<nn::Linear>(3, 32)) {}

 protected:
  Tensor guided(const Tensor& norm_hidden_states, const Tensor& guide) const override {
    return guide ? norm_hidden_states + (*fuser)(guide) : norm_hidden_states;
  }
};

struct SteeredModel : CogVideoXTransformer3DModel {
  nn::ModuleList<nn::Linear> fuser_list;
  SF_MODULE(SteeredModel, patch_embed, embedding_dropout, time_embedding, ofs_embedding, transformer_blocks, norm_final,
            norm_out, proj_out, fuser_list)
  explicit SteeredModel(Config config)
      : CogVideoXTransformer3DModel(std::move(config),
                                    [](const Config& c, int64_t) { return std::make_shared<SteeredBlock>(c); }) {
    for (auto& block : transformer_blocks) fuser_list.push_back(static_cast<SteeredBlock&>(block).fuser);
  }
  Tensor steer(const Tensor& x, const Tensor& text, const Tensor& t, const Tensors& guides) const {
    return predict(x, text, t, {}, {}, guides);
  }
};

TEST(CogVideoX, BlocksOfAnotherClassSteerTheVideo) {
  manual_seed(3);
  SteeredModel model(tiny());
  CogVideoXTransformer3DModel plain(tiny());
  std::set<std::string> fusers;
  {
    autograd::NoGrad off;
    auto named = nn::named_parameters(model);
    for (auto& p : nn::named_parameters(plain))
      for (auto& q : named)
        if (p.name == q.name) Tensor(p.tensor).copy_(q.tensor);
    for (auto& q : named)
      if (q.name.find("fuser") != q.name.npos) fusers.insert(q.name);
  }
  EXPECT_EQ(fusers, (std::set<std::string>{"fuser_list.0.weight", "fuser_list.0.bias", "fuser_list.1.weight",
                                           "fuser_list.1.bias"}));
  const Tensor x = randn({2, 3, 4, 4, 8}), text = randn({2, 5, 10}), t = scalar_tensor(7);
  const Tensor want = plain(x, text, t);
  EXPECT_EQ(model.steer(x, text, t, {}).to_vector(), want.to_vector());
  EXPECT_THROW(model.steer(x, text, t, {randn({2, 24, 3})}), Error);

  std::vector<double> first;
  for (bool checkpointing : {false, true}) {
    model.enable_gradient_checkpointing(checkpointing);
    manual_seed(4);
    const Tensors guides{nn::parameter(randn({2, 24, 3})), nn::parameter(randn({2, 24, 3}))};
    for (auto& p : nn::named_parameters(model)) p.tensor.set_grad({});
    const Tensor y = model.steer(x, text, t, guides);
    EXPECT_NE(y.to_vector(), want.to_vector());
    mean(square(y)).backward();
    for (auto& g : guides) ASSERT_TRUE(g.grad());
    for (auto& p : nn::named_parameters(model)) EXPECT_TRUE(p.tensor.grad()) << p.name;
    if (checkpointing) EXPECT_EQ(guides[0].grad().to_vector(), first);
    first = guides[0].grad().to_vector();
  }
}

TEST(CogVideoX, RotaryPositionsOfACropAndOfASlice) {
  // A crop that is the whole grid has its patches one apart.
  const Tensor whole = rotary_positions_3d(16, {.size = {2, 3, 4}, .crop = std::array<double, 4>{0, 0, 3, 4}}),
               slice = rotary_positions_3d(16, {.size = {2, 3, 4}});
  ASSERT_EQ(whole.shape(), (Shape{2, 24, 16}));
  EXPECT_LT(amax(abs(whole - slice)).item(), 1e-6);
  // The last patch is at frame 1, row 2, column 3: channels 0 to 3, 4 to 9 and 10 to 15, slower from pair to pair.
  const Tensor cosines = slice.select(0, 0).select(0, 23);
  auto at = [&](int64_t i) { return cosines.select(0, i).item(); };
  EXPECT_NEAR(at(0), std::cos(1.0), 1e-6);
  EXPECT_EQ(at(0), at(1));
  EXPECT_NEAR(at(4), std::cos(2.0), 1e-6);
  EXPECT_NEAR(at(10), std::cos(3.0), 1e-6);
  EXPECT_NEAR(at(12), std::cos(3.0 / std::pow(10000.0, 1.0 / 3)), 1e-6);
}

TEST(CogVideoX, SinesTellFrameThenColumnThenRow) {
  const Tensor s = sincos_positions_3d(16, {2, 2, 3}, 2, 1);
  ASSERT_EQ(s.shape(), (Shape{2, 6, 16}));
  const Tensor last = s.select(0, 1).select(0, 5);  // frame 1, row 1, column 2
  EXPECT_NEAR(last.select(0, 0).item(), std::sin(1.0), 1e-6);
  EXPECT_NEAR(last.select(0, 4).item(), std::sin(1.0), 1e-6);   // 2 / 2
  EXPECT_NEAR(last.select(0, 10).item(), std::sin(0.5), 1e-6);  // 1 / 2
}

}  // namespace
}  // namespace sf::models
