#include "scaffolding/server/http/multipart.h"

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"

namespace sf::server {
namespace {

// As Python's httpx, curl and browsers write them.
TEST(Multipart, FieldsAndFiles) {
  const std::string body =
      "--x\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nred apple\r\n"
      "--x\r\nContent-Disposition: form-data; name=\"image[]\"; filename=\"a \\\"b\\\".png\"\r\n"
      "Content-Type: image/PNG; q=1\r\n\r\n\x89PNG\r\n--y\r\n\r\n"
      "--x\r\ncontent-disposition: form-data; name=empty\r\n\r\n\r\n"
      "--x--\r\nwhat follows is nobody's";
  const auto parts = parse_form(body, "x");
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].name, "prompt");
  EXPECT_EQ(parts[0].value, "red apple");
  EXPECT_EQ(parts[1].name, "image[]");
  EXPECT_EQ(parts[1].file_name, "a \"b\".png");
  EXPECT_EQ(parts[1].type, "image/png");
  EXPECT_EQ(parts[1].value, "\x89PNG\r\n--y\r\n");
  EXPECT_EQ(parts[2].name, "empty");
  EXPECT_EQ(parts[2].value, "");
}

TEST(Multipart, TheBoundaryIsReadFromTheType) {
  EXPECT_EQ(form_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(form_boundary("Multipart/Form-Data; charset=utf-8; boundary=\"a b\""), "a b");
  for (const std::string& bad :
       {std::string("multipart/form-data"), std::string("application/json"),
        std::string("multipart/form-data; boundary="), "multipart/form-data; boundary=" + std::string(71, 'a')})
    EXPECT_THROW(form_boundary(bad), ValueError) << bad;
}

TEST(Multipart, WhatIsBrokenIsRefused) {
  const std::string head = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";
  SF_EXPECT_ERROR(ValueError, "no boundary", parse_form("", "x"));
  SF_EXPECT_ERROR(ValueError, "has no end", parse_form(head + "value", "x"));
  SF_EXPECT_ERROR(ValueError, "ends before", parse_form(head + "value\r\n--x", "x"));
  SF_EXPECT_ERROR(ValueError, "has no name", parse_form("--x\r\nContent-Type: a\r\n\r\nv\r\n--x--", "x"));
  SF_EXPECT_ERROR(ValueError, "must be form-data",
                  parse_form("--x\r\nContent-Disposition: attachment; name=a\r\n\r\nv\r\n--x--", "x"));
  SF_EXPECT_ERROR(ValueError, "quoted value",
                  parse_form("--x\r\nContent-Disposition: form-data; name=\"a\r\n\r\nv\r\n--x--", "x"));
  SF_EXPECT_ERROR(ValueError, "headers have no end",
                  parse_form("--x\r\nA: " + std::string(5000, 'b') + "\r\n\r\nv\r\n--x--", "x"));
  std::string many;
  for (size_t i = 0; i <= kMostFormParts; ++i) many += head + "v\r\n";
  SF_EXPECT_ERROR(ValueError, "more than", parse_form(many + "--x--", "x"));
}

}  // namespace
}  // namespace sf::server
