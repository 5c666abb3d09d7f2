#include "scaffolding/io/formats/zip.h"

#include "scaffolding/io/formats/npy.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::io {
namespace {

class Zip : public TestFolder {};

Bytes archive(const std::vector<std::pair<std::string, std::string>>& entries) {
  MemorySink sink;
  ZipWriter zip(sink);
  for (auto& [name, data] : entries) zip.add(name, data.data(), data.size());
  zip.finish();
  return Bytes::take(std::move(sink.bytes), "archive");
}

TEST_F(Zip, entries_are_aligned_borrowed_and_whole) {
  Bytes file = archive({{"a", "hello"}, {"folder/b", ""}, {std::string(70, 'n'), std::string(1000, 'x')}});
  ZipReader zip(file);
  ASSERT_EQ(zip.entries().size(), 3u);
  for (auto& e : zip.entries()) {
    EXPECT_EQ(e.offset % 64, 0u) << e.name;
    Bytes data = zip.read(e, true);
    EXPECT_EQ(data.data, file.data + e.offset);
  }
  EXPECT_EQ(std::string(zip.read(*zip.find("a"), true).chars(), 5), "hello");
  EXPECT_EQ(zip.find("c"), nullptr);
}

TEST_F(Zip, a_changed_byte_is_found_by_the_checksum) {
  Bytes file = archive({{"a", "hello"}});
  std::string bytes(file.chars(), file.size);
  bytes[bytes.find("hello")] = 'j';
  ZipReader zip(Bytes::borrow(bytes.data(), bytes.size(), "changed"));
  SF_EXPECT_ERROR(ValueError, "CRC", zip.read(zip.entries()[0], true));
  EXPECT_NO_THROW(zip.read(zip.entries()[0], false));
}

TEST_F(Zip, many_entries_make_a_zip64_directory) {
  MemorySink sink;
  ZipWriter zip(sink);
  for (int i = 0; i < 70000; ++i) zip.add(std::to_string(i), "", 0, 1);
  zip.finish();
  ZipReader read(Bytes::take(std::move(sink.bytes), "many"));
  EXPECT_EQ(read.entries().size(), 70000u);
  EXPECT_NE(read.find("69999"), nullptr);
}

TEST_F(Zip, npz_and_npy_are_written_and_read) {
  std::map<std::string, Tensor> in = {
      {"a", tensor({1, -2, 0.5}).reshape({3, 1})}, {"none", empty({0, 2}, kInt16)}, {"scalar", full({}, 7, kInt64)}};
  for (DType t : {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kFloat32, kFloat64})
    in[std::string(name(t))] = tensor({0, 1, 1}).to(t);
  in["turned"] = arange(0, 6).reshape({2, 3}).transpose(0, 1);
  MemorySink sink;
  save_npz(in, sink);
  NpzFile file(Bytes::take(std::move(sink.bytes), "npz"));
  EXPECT_EQ(file.names().size(), in.size());
  for (auto& [name, want] : in) {
    Tensor got = file.get(name);
    EXPECT_EQ(got.dtype(), want.dtype()) << name;
    EXPECT_EQ(str(got.shape()), str(want.shape())) << name;
    EXPECT_EQ(got.to_vector(), want.to_vector()) << name;
  }
  MemorySink nothing;
  SF_EXPECT_ERROR(TypeError, "NumPy has no bfloat16",
                  (save_npz({{"a", tensor({1})}, {"b", tensor({1}).to(kBFloat16)}}, nothing), 0));
  EXPECT_TRUE(nothing.bytes.empty());
  SF_EXPECT_ERROR(ValueError, "there is no array 'x'", file.get("x"));
}

}  // namespace
}  // namespace sf::io
