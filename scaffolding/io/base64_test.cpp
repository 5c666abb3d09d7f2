#include "scaffolding/io/base64.h"

#include <gtest/gtest.h>

namespace sf::io {
namespace {

TEST(Base64, is_rfc_4648s) {
  const char* rows[][2] = {{"", ""},
                           {"f", "Zg=="},
                           {"fo", "Zm8="},
                           {"foo", "Zm9v"},
                           {"foob", "Zm9vYg=="},
                           {"fooba", "Zm9vYmE="},
                           {"foobar", "Zm9vYmFy"}};
  for (auto& [bytes, text] : rows) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), std::string(bytes));
  }
}

TEST(Base64, takes_every_byte_and_refuses_what_is_none) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += char(i);
  EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  for (const char* text : {"Z g=", "Zg\xFF", "Z-_g", "Zg\n="}) EXPECT_FALSE(from_base64(text)) << text;
}

}  // namespace
}  // namespace sf::io
