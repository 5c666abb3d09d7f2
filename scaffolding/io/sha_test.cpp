#include "scaffolding/io/sha.h"

#include <gtest/gtest.h>

#include <algorithm>

using sf::io::Sha;

namespace {

std::string hex(Sha::Kind kind, const std::string& text, size_t piece, bool portable) {
  Sha sha(kind, portable);
  for (size_t at = 0; at < text.size(); at += piece) sha.update(text.data() + at, std::min(piece, text.size() - at));
  return sha.hex();
}

}  // namespace

// The examples of FIPS 180-4's companion document, whole and in pieces.
TEST(Sha, gives_the_standards_examples) {
  std::string two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", million(1000000, 'a');
  for (bool portable : {false, true})
    for (size_t piece : {size_t(1), size_t(63), size_t(64), size_t(65), size_t(1) << 20}) {
      EXPECT_EQ(hex(Sha::Sha1, "", piece, portable), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
      EXPECT_EQ(hex(Sha::Sha1, "abc", piece, portable), "a9993e364706816aba3e25717850c26c9cd0d89d");
      EXPECT_EQ(hex(Sha::Sha1, two, piece, portable), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
      EXPECT_EQ(hex(Sha::Sha1, million, piece, portable), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
      EXPECT_EQ(hex(Sha::Sha256, "", piece, portable),
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
      EXPECT_EQ(hex(Sha::Sha256, "abc", piece, portable),
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
      EXPECT_EQ(hex(Sha::Sha256, two, piece, portable),
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
      EXPECT_EQ(hex(Sha::Sha256, million, piece, portable),
                "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}
