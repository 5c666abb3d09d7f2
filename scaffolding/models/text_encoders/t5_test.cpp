#include "scaffolding/models/text_encoders/t5.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/test_packed.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

TEST(T5, distances_fall_into_the_buckets_of_transformers) {
  const nlohmann::json golden =
      nlohmann::json::parse(test::unpacked(SF_SOURCE_DIR "/tests/golden/models/t5.json.gz"))["extra"];
  for (auto [buckets, largest] : {std::pair{32, 128}, {8, 12}, {64, 1000}, {4, 7}}) {
    const auto want = golden["buckets of " + std::to_string(buckets) + " up to " + std::to_string(largest)]
                          .get<std::vector<int64_t>>();
    const auto reach = int64_t(want.size() / 2);
    ASSERT_GT(reach, 200);
    for (int64_t d = -reach; d <= reach; ++d)
      EXPECT_EQ(t5_position_bucket(d, buckets, largest), want[size_t(d + reach)]) << d << " of " << buckets;
  }
}

TEST(T5, a_bias_is_the_bucket_of_the_other_place_less_the_own) {
  autograd::NoGrad off;
  T5Config c{.vocab_size = 5, .d_model = 4, .d_kv = 2, .d_ff = 3, .num_layers = 2, .num_heads = 2};
  T5EncoderModel model(c);
  auto& attention = model.encoder.block[0].layer.get<0>().SelfAttention;
  attention.relative_attention_bias->weight.copy_(arange(0, 64).reshape({32, 2}).to(kFloat32));
  Tensor bias = attention.compute_bias(4);
  ASSERT_EQ(bias.shape(), (Shape{1, 2, 4, 4}));
  auto values = bias.to_vector();
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t own = 0; own < 4; ++own)
      for (int64_t other = 0; other < 4; ++other)
        EXPECT_EQ(values[size_t((head * 4 + own) * 4 + other)],
                  2 * double(t5_position_bucket(other - own, 32, 128)) + double(head));
  EXPECT_FALSE(model.encoder.block[1].layer.get<0>().SelfAttention.relative_attention_bias);
}

}  // namespace
}  // namespace sf::models
