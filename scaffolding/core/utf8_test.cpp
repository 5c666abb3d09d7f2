#include "scaffolding/core/utf8.h"

#include <gtest/gtest.h>

namespace sf {
namespace {

TEST(Utf8, CharactersHaveTheirLength) {
  for (const char* text : {"a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    const std::string_view one = text;
    EXPECT_EQ(utf8_length(one), one.size());
    EXPECT_EQ(utf8_length(text + std::string("\xff")), one.size());
    EXPECT_TRUE(is_utf8(one));
    for (size_t n = 0; n < one.size(); ++n) EXPECT_EQ(utf8_length(one.substr(0, n)), 0u);
  }
  EXPECT_TRUE(is_utf8(""));
  EXPECT_EQ(utf8_length(std::string_view("\0", 1)), 1u);
}

TEST(Utf8, WhatIsNoneIsNone) {
  for (const char* text : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2",
                           "\xc2"
                           "a",
                           "\xe0\x9f\xbf", "\xe0\xa0", "\xed\xa0\x80", "\xed\xbf\xbf", "\xef\xbf\xc0",
                           "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(utf8_length(text), 0u) << testing::PrintToString(text);
    EXPECT_FALSE(is_utf8(std::string("a") + text));
  }
}

}  // namespace
}  // namespace sf
