#include "scaffolding/diffusion/pipelines/lora_tags.h"

#include <gtest/gtest.h>

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"

namespace sf::diffusion {

static void PrintTo(const LoraTag& tag, std::ostream* out) {
  *out << tag.name << " te=" << tag.text_encoders << " unet=" << tag.denoiser;
}

namespace {

using Tags = std::vector<LoraTag>;

TEST(LoraTags, WeightsByPlaceAndByName) {
  const struct {
    const char* prompt;
    LoraTag tag;
  } cases[] = {
      {"<lora:style>", {"style", 1, 1}},
      {"<lora:style:0.8>", {"style", 0.8, 0.8}},
      {"<lyco:style:0.8>", {"style", 0.8, 0.8}},
      {"<lora:style:0.5:0.25>", {"style", 0.5, 0.25}},
      {"<lora:style:te=0.5>", {"style", 0.5, 0.5}},  // the web UI's denoiser follows the text encoders
      {"<lora:style:unet=0.5>", {"style", 1, 0.5}},
      {"<lora:style:unet=0.5:te=0.25>", {"style", 0.25, 0.5}},
      {"<lora:style:0.75:0.5:te=0.25>", {"style", 0.25, 0.5}},
      {"<lora:style:0.75:unet=2>", {"style", 0.75, 2}},
      {"<lora:style:-1>", {"style", -1, -1}},
      {"<lora:style:0>", {"style", 0, 0}},
      {"<lora: my style v1.2 : +.5 >", {"my style v1.2", 0.5, 0.5}},
      {"<lora:sub/style:1e-1>", {"sub/style", 0.1, 0.1}},
  };
  for (auto& c : cases) {
    const TaggedPrompt got = take_lora_tags(c.prompt);
    EXPECT_EQ(got.text, "") << c.prompt;
    EXPECT_EQ(got.tags, Tags{c.tag}) << c.prompt;
  }
}

TEST(LoraTags, AreTakenOutOfTheText) {
  const TaggedPrompt got = take_lora_tags("a cat <lora:one:0.5>, (by <lora:two>(night:1.2)<lyco:one:1> end");
  EXPECT_EQ(got.text, "a cat , (by (night:1.2) end");
  EXPECT_EQ(got.tags, (Tags{{"one", 0.5, 0.5}, {"two", 1, 1}, {"one", 1, 1}}));
  EXPECT_EQ(take_lora_tags("<<lora:a:2>>").text, "<>");
}

TEST(LoraTags, OtherBracketsAreText) {
  for (const char* text : {"", "a cat", "<", "<lora", "<lora:", "<lora:>", "<lora:open", "a < b > c", "<Lora:a:1>",
                           "<hypernet:a:1>", "< lora:a:1>", "<|endoftext|>", "<lora>", "<lora:a <lora:b"}) {
    const TaggedPrompt got = take_lora_tags(text);
    EXPECT_EQ(got.text, text);
    EXPECT_TRUE(got.tags.empty()) << text;
  }
}

TEST(LoraTags, RefuseWhatTheyDoNotSay) {
  SF_EXPECT_ERROR(ValueError, "prompt: <lora:style:strong>: a weight must be a number, as in name:0.8",
                  take_lora_tags("a <lora:style:strong>"));
  for (const char* tag : {"<lora:a:nan>", "<lora:a:inf>", "<lora:a:1e39>", "<lora:a:te=>", "<lora:a:1:>", "<lora:a::1>",
                          "<lora:a:0x1>", "<lora:a:1,5>", "<lora:a:+-1>", "<lora:a:b:0.8>", "<lora:a<lora:b:1>"})
    SF_EXPECT_ERROR(ValueError, "a weight must be a number", take_lora_tags(tag));
  SF_EXPECT_ERROR(ValueError, "<lora:a:>: has a ':' and no weight behind it", take_lora_tags("<lora:a:>"));
  SF_EXPECT_ERROR(ValueError, "<lora: :1>: has no name; a tag is <lora:name:0.8>", take_lora_tags("<lora: :1>"));
  SF_EXPECT_ERROR(ValueError, "there is no 'lbw='; weights are te= (text encoders) and unet= (denoiser)",
                  take_lora_tags("<lora:a:1:lbw=OUTALL>"));
  SF_EXPECT_ERROR(NotSupported, "ranks cannot be cut here", take_lora_tags("<lora:a:1:1:8>"));
  SF_EXPECT_ERROR(NotSupported, "ranks cannot be cut here", take_lora_tags("<lora:a:dyn=8>"));
  SF_EXPECT_ERROR(ValueError, "takes two weights", take_lora_tags("<lora:a:1:1:8:9>"));
}

TEST(LoraTags, ComeBackFromTheirText) {
  for (const LoraTag& tag : Tags{{"style", 1, 1}, {"style", 0.8, 0.8}, {"style", -0.5, 0}, {"a b", 0, 1.25}})
    EXPECT_EQ(take_lora_tags(text_of(tag)).tags, Tags{tag});
  EXPECT_EQ(text_of({"style", 0.8, 0.8}), "<lora:style:0.8>");
  EXPECT_EQ(text_of({"style", 0.5, 0.8}), "<lora:style:0.5:0.8>");
}

}  // namespace
}  // namespace sf::diffusion
