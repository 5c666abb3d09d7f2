#include "scaffolding/io/formats/gguf.h"

#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/formats/gguf_writer.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/ops/quantize/gguf.h"

namespace sf::io {
namespace {

const std::string kFile = (std::filesystem::path(SF_SOURCE_DIR) / "tests/golden/checkpoints/types.gguf").string();

TEST(Gguf, metadata_of_every_type_are_read) {
  GgufFile file(kFile);
  EXPECT_EQ(file.version(), 3);
  Object m = file.metadata();
  EXPECT_EQ(m.find("general.architecture")->text(), "test");
  EXPECT_EQ(m.find("u8")->as_int(), 200);
  EXPECT_EQ(m.find("i8")->as_int(), -100);
  EXPECT_EQ(m.find("u16")->as_int(), 60000);
  EXPECT_EQ(m.find("i16")->as_int(), -30000);
  EXPECT_EQ(m.find("u32")->as_int(), 4000000000);
  EXPECT_EQ(m.find("i32")->as_int(), -2000000000);
  EXPECT_EQ(m.find("u64")->text(), std::string(8, '\xff') + '\0');
  EXPECT_EQ(m.find("i64")->as_int(), -(int64_t(1) << 62));
  EXPECT_EQ(m.find("f32")->as_float(), 0.5);
  EXPECT_EQ(m.find("f64")->as_float(), 0.1);
  EXPECT_TRUE(m.find("yes")->as_bool());
  EXPECT_EQ(m.find("text")->text(), "\u00e9");
  EXPECT_EQ(m.find("numbers")->items().at(2).as_int(), 3);
  EXPECT_EQ(m.find("words")->items().at(2).text(), "bc");
}

TEST(Gguf, quantised_tensors_become_the_dtype_that_is_asked_for) {
  GgufFile file(kFile);
  for (auto& e : file.entries()) {
    if (e.format->block == 1) continue;
    Tensor f32 = file.get(e.name);
    EXPECT_EQ(file.get(e.name, kBFloat16).to_vector(), f32.to(kBFloat16).to_vector()) << e.name;
    EXPECT_EQ(file.get(e.name, kFloat16).to_vector(), f32.to(kFloat16).to_vector()) << e.name;
  }
  EXPECT_EQ(file.get("F16").dtype(), kFloat16);
  SF_EXPECT_ERROR(TypeError, "float32, float16 or bfloat16", file.get("Q4_0", kInt8));
  SF_EXPECT_ERROR(ValueError, "there is no tensor", file.get("x"));
}

TEST(Gguf, plain_tensors_borrow_the_file) {
  GgufFile file(kFile);
  EXPECT_EQ(file.get("F32").data_ptr(), file.get("F32").data_ptr());
}

class GgufWriter : public TestFolder {};

TEST_F(GgufWriter, WhatIsWrittenIsRead) {
  const Tensor linear = randn({6, 64}), kernel = randn({32, 4, 3, 3}), bias = randn({5});
  auto blocks = [&](const Tensor& t, const char* format, int64_t row) {
    return GgufTensor{quantize_gguf(t.reshape({-1, row}), format), &gguf_blocks("test", format), t.shape()};
  };
  save_gguf({{"linear", blocks(linear, "Q8_0", 64)},
             {"kernel", blocks(kernel, "Q4_0", 1152)},
             {"bias", plain_gguf("bias", bias)}},
            path("a.gguf"), {{"note", "text"}});
  GgufFile file(path("a.gguf"));
  EXPECT_EQ(file.metadata().find("note")->text(), "text");
  EXPECT_EQ(file.get("bias").to_vector(), bias.to_vector());
  EXPECT_EQ(file.get("linear").to_vector(),
            dequantize_gguf(quantize_gguf(linear, "Q8_0"), "Q8_0", {6, 64}).to_vector());
  EXPECT_EQ(file.entry("kernel").shape, Shape({32, 4, 3, 3}));
  EXPECT_EQ(file.stored("linear").numel(), 6 * 68);
  SF_EXPECT_ERROR(ValueError, "GGUF files cannot hold", plain_gguf("x", to_dtype(bias, kFloat8E4M3)));
  SF_EXPECT_ERROR(ValueError, "needs 408 bytes",
                  save_gguf({{"x", {zeros({7}, kUInt8), &gguf_blocks("test", "Q8_0"), {6, 64}}}}, path("b.gguf")));
  EXPECT_FALSE(std::filesystem::exists(path("b.gguf")));
}

}  // namespace
}  // namespace sf::io
