#include "scaffolding/server/http/url.h"

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"

namespace sf::server {
namespace {

TEST(Url, TargetsAreDecoded) {
  const Target t = parse_target("/a%20b/c?x=1+2&y=%C3%A9&flag&x=3#end");
  EXPECT_EQ(t.path, "/a b/c");
  EXPECT_EQ(t.query, (std::map<std::string, std::string>{{"x", "3"}, {"y", "\xC3\xA9"}, {"flag", ""}}));
  EXPECT_EQ(parse_target("/a+b").path, "/a+b");
  EXPECT_EQ(parse_target("/?").query.size(), 0u);
}

TEST(Url, WhatIsNoneIsRefused) {
  for (const char* bad :
       {"", "a", "http://other/", "*", "/%", "/%4", "/%zz", "/%00", "/%ff", "/%C0%AF", "/?a=%ED%A0%80"})
    EXPECT_THROW(parse_target(bad), ValueError) << bad;
}

TEST(Url, PercentSignsGoThereAndBack) {
  std::string all;
  for (int c = 1; c < 128; ++c) all += char(c);
  EXPECT_EQ(decode_percent(encode_percent(all)), all);
  EXPECT_EQ(encode_percent("a/b c"), "a%2Fb%20c");
}

TEST(Url, HostsLoseTheirPort) {
  EXPECT_EQ(host_of("LocalHost:7860"), "localhost");
  EXPECT_EQ(host_of("[::1]:80"), "[::1]");
  EXPECT_EQ(host_of("[::1"), "[::1");
  EXPECT_EQ(host_of("example.org"), "example.org");
  EXPECT_EQ(host_of(""), "");
}

}  // namespace
}  // namespace sf::server
