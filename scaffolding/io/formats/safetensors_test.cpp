#include "scaffolding/io/formats/safetensors.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::io {
namespace {

namespace fs = std::filesystem;

class Safetensors : public TestFolder {
 protected:
  std::string path(const std::string& name = "x.safetensors") const { return TestFolder::path(name); }

  std::string write(const std::string& header, const std::string& data = "", int64_t length = -1) const {
    uint64_t n = length < 0 ? header.size() : uint64_t(length);
    std::ofstream out(path(), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&n), 8);
    out << header << data;
    return path();
  }
  // The header is refused, with a message that contains text.
  void refused(const char* text, const std::string& header, const std::string& data = "", int64_t length = -1) const {
    SCOPED_TRACE(header.substr(0, 200));
    try {
      SafetensorsFile file(write(header, data, length));
      ADD_FAILURE() << "was accepted; expected '" << text << "'";
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  }
};

const std::string kFour(16, '\0');  // the data of one F32 [2, 2]

TEST_F(Safetensors, what_was_written_is_read) {
  std::map<std::string, Tensor> in = {{"weight", tensor({1, -2, 0.5, 4}).reshape({2, 2})},
                                      {"nothing", empty({0, 5}, kInt16)},
                                      {"scalar", full({}, 3.5, kFloat64)}};
  for (DType t : {kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kFloat32, kFloat64, kBool, kBFloat16, kFloat8E4M3,
                  kFloat8E5M2})
    in["of." + std::string(name(t))] = tensor({0, 1, 1}).to(t);
  save_safetensors(in, path(), {{"format", "pt"}, {"k", "v \u00e9 \"quoted\"\n"}});
  SafetensorsFile file(path());
  EXPECT_EQ(file.metadata().at("k"), "v \u00e9 \"quoted\"\n");
  EXPECT_EQ(file.metadata().size(), 2u);
  ASSERT_EQ(file.entries().size(), in.size());
  for (auto& [name, want] : in) {
    Tensor got = file.get(name);
    EXPECT_EQ(got.dtype(), want.dtype()) << name;
    EXPECT_EQ(str(got.shape()), str(want.shape())) << name;
    EXPECT_EQ(got.to_vector(), want.to_vector()) << name;
  }
}

TEST_F(Safetensors, tensors_borrow_the_mapping_and_outlive_the_file_object) {
  save_safetensors({{"a", tensor({1, 2, 3, 4})}}, path());
  Tensor a, again;
  {
    SafetensorsFile file(path());
    a = file.get("a");
    again = file.get("a");
    EXPECT_EQ(a.data_ptr(), again.data_ptr());
  }
  fs::remove(path());
  EXPECT_EQ(a.to_vector(), (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(Safetensors, writing_into_a_loaded_tensor_leaves_the_file_alone) {
  save_safetensors({{"a", tensor({1, 2})}}, path());
  std::string before = bytes_of(path());
  SafetensorsFile(path()).get("a").fill_(7);
  EXPECT_EQ(bytes_of(path()), before);
}

TEST_F(Safetensors, equal_content_gives_equal_bytes) {
  Tensor x = tensor({1, 2, 3, 4, 5, 6}).reshape({2, 3});
  save_safetensors({{"b", x.transpose(0, 1)}, {"a", x}, {"n", tensor({1}).to(kInt8)}}, path("one"),
                   {{"z", "1"}, {"y", "2"}});
  save_safetensors({{"n", tensor({1}).to(kInt8)}, {"a", x.clone()}, {"b", x.transpose(0, 1).contiguous()}}, path("two"),
                   {{"y", "2"}, {"z", "1"}});
  EXPECT_EQ(bytes_of(path("one")), bytes_of(path("two")));
  auto loaded = load_safetensors(path("one"));
  save_safetensors(loaded, path("two"), SafetensorsFile(path("one")).metadata());
  EXPECT_EQ(bytes_of(path("one")), bytes_of(path("two")));
}

TEST_F(Safetensors, a_file_can_be_replaced_while_its_tensors_live) {
  save_safetensors({{"a", tensor({1, 2})}}, path());
  auto loaded = load_safetensors(path());
  loaded["a"].mul_(2);
  save_safetensors(loaded, path());
  EXPECT_EQ(load_safetensors(path()).at("a").to_vector(), (std::vector<double>{2, 4}));
  EXPECT_EQ(loaded["a"].to_vector(), (std::vector<double>{2, 4}));
}

TEST_F(Safetensors, a_failed_save_leaves_the_old_file_and_nothing_else) {
  save_safetensors({{"a", tensor({1, 2})}}, path());
  std::string before = bytes_of(path());
  EXPECT_THROW(save_safetensors({{"a", Tensor()}}, path()), TypeError);
  EXPECT_THROW(save_safetensors({{"a", empty({2}, kFloat32, Device::Meta)}}, path()), RuntimeError);
  EXPECT_THROW(save_safetensors({{"__metadata__", tensor({1})}}, path()), ValueError);
  EXPECT_THROW(save_safetensors({{"\xff", tensor({1})}}, path()), ValueError);
  EXPECT_THROW(save_safetensors({{"a", tensor({1})}}, path("missing/x")), RuntimeError);
  fs::create_directory(path("folder"));
  EXPECT_THROW(save_safetensors({{"a", tensor({1})}}, path("folder")), RuntimeError);
  EXPECT_EQ(bytes_of(path()), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

TEST_F(Safetensors, a_link_keeps_naming_the_replaced_file) {
  save_safetensors({{"a", tensor({1})}}, path("real"));
  fs::create_symlink(path("real"), path("link"));
  save_safetensors({{"a", tensor({2})}}, path("link"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(load_safetensors(path("real")).at("a").to_vector(), (std::vector<double>{2}));
}

TEST_F(Safetensors, unreadable_paths_are_runtime_errors) {
  EXPECT_THROW(SafetensorsFile(path("absent")), RuntimeError);
  EXPECT_THROW(SafetensorsFile(folder_.string()), RuntimeError);
  EXPECT_THROW(SafetensorsFile("/dev/null"), RuntimeError);
}

TEST_F(Safetensors, unaligned_data_and_odd_bools_are_copied) {
  SafetensorsFile file(write(
      R"({"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F32","shape":[],"data_offsets":[1,5]},)"
      R"("c":{"dtype":"U16","shape":[1],"data_offsets":[5,7]}})",
      std::string("\x02\x00\x00\x80\x3f\xff\xff", 7)));
  EXPECT_EQ(file.get("b").to_vector(), (std::vector<double>{1}));
  EXPECT_EQ(file.get("f").item(), 1.0);
  EXPECT_EQ(file.get("c").dtype(), kInt32);
  EXPECT_EQ(file.get("c").item(), 65535.0);
  EXPECT_THROW(file.get("d"), ValueError);
}

TEST_F(Safetensors, known_formats_without_a_dtype_open_but_do_not_load) {
  SafetensorsFile file(write(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", "ab"));
  EXPECT_THROW(file.get("a"), NotSupported);
  refused("whole byte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "ab");
}

TEST_F(Safetensors, broken_headers_are_refused) {
  refused("header cannot have", "{}", "", 3);
  refused("header cannot have", "{}", "", INT64_MAX);
  refused("not a JSON object", "", "", 0);
  refused("not a JSON object", " {}");
  refused("not a JSON object", "[]");
  refused("JSON is broken", "{\"a\":");
  refused("JSON is broken", "{} x");
  refused("JSON is broken", R"({"\ud800":1})");
  refused("JSON is broken", "{\"\xff\":1}");
  refused("a number stands", R"({"a":1})");
  refused("an array stands", R"({"a":[]})");
  refused("appears twice", R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{}})");
  refused("needs dtype", R"({"a":{"dtype":"F32","shape":[0]}})");
  refused("two fields", R"({"a":{"dtype":"F32","dtype":"F32"}})");
  refused("unknown field", R"({"a":{"dtypes":"F32"}})");
  refused("unknown dtype", R"({"a":{"dtype":"f32","shape":[0],"data_offsets":[0,0]}})");
  refused("a string stands", R"({"__metadata__":"x"})");
  refused("a number stands", R"({"__metadata__":{"x":1}})");
  refused("appears twice", R"({"__metadata__":{"x":"1","x":"2"}})");
  refused("an object stands", R"({"a":{"shape":[{}]}})");
  std::string deep = "{\"a\":{\"shape\":";
  refused("an array stands", deep + std::string(200000, '['));
  refused("an object stands", deep + std::string(100000, '{'));
}

TEST_F(Safetensors, wrong_shapes_and_offsets_are_refused) {
  auto one = [](const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}}";
  };
  EXPECT_NO_THROW(SafetensorsFile(write(one("2,2", "0,16"), kFour)));
  refused("negative", one("-2,-2", "0,16"), kFour);
  refused("no 64-bit integer", one("2.0,2", "0,16"), kFour);
  refused("no 64-bit integer", one("18446744073709551616", "0,16"), kFour);
  refused("size over 2^63", one("9223372036854775808", "0,16"), kFour);
  refused("fit in 64 bits", one("4294967296,4294967296", "0,0"));
  refused("fit in 64 bits", one("0,4294967296,4294967296", "0,0"));
  refused("does not fill", one("1073741824,4", "0,16"), kFour);
  refused("more than 12", one("1,1,1,1,1,1,1,1,1,1,1,1,1", "0,4"), "abcd");
  refused("data_offsets", one("2,2", "16,0"), kFour);
  refused("data_offsets", one("2,2", "0,17"), kFour);
  refused("must be two", one("2,2", "0"), kFour);
  refused("must be two", one("2,2", "0,16,16"), kFour);
  refused("follow the last", one("2,2", "0,16"), kFour + "x");
  refused("begins at byte 4", one("3", "4,16"), kFour);
  refused("follow the last", "{}", "x");
  std::string pair =
      R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[4],"data_offsets":[)";
  refused("begins at byte 0", pair + "0,16]}}", kFour);
  refused("begins at byte 8", pair + "8,24]}}", kFour + kFour.substr(8));
  refused("begins at byte 20", pair + "20,36]}}", kFour + kFour + "abcd");
}

// Every byte of a small file replaced in turn: it is refused or it loads, nothing else.
TEST_F(Safetensors, damaged_files_never_crash) {
  save_safetensors({{"a", tensor({1, 2, 3})}, {"flag", tensor({1, 0}).to(kBool)}}, path(), {{"k", "v"}});
  std::string good = bytes_of(path());
  int refusals = 0;
  for (size_t i = 0; i < good.size(); ++i)
    for (unsigned char v : {0x00, 0x22, 0x2d, 0x39, 0x5b, 0x7b, 0x7d, 0x80, 0xff}) {
      std::string bad = good;
      bad[i] = char(v);
      try {
        SafetensorsFile file(Bytes::borrow(bad.data(), bad.size(), "damaged"));
        for (auto& e : file.entries()) file.get(e.name).to_vector();
      } catch (const Error&) {
        ++refusals;
      }
    }
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_THROW(SafetensorsFile{Bytes::borrow(good.data(), n, "cut")}, ValueError) << "cut to " << n << " bytes";
  }
  EXPECT_GT(refusals, 500);
}

TEST_F(Safetensors, one_file_serves_several_threads) {
  save_safetensors({{"a", arange(0, 1000)}, {"b", arange(0, 500)}}, path());
  SafetensorsFile file(path());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) EXPECT_EQ(file.get(k % 2 ? "a" : "b").data<int64_t>()[499], 499);
    });
  for (auto& t : threads) t.join();
}

// The collection that lies beside the repository (or above it) where the project is developed.
TEST_F(Safetensors, the_shared_collection_is_accepted_and_refused_as_its_manifest_says) {
  fs::path collection;
  if (const char* set = std::getenv("SF_SHARED_DATA")) collection = fs::path(set) / "safetensors_malformed";
  for (fs::path up = fs::path(SF_SOURCE_DIR); up.has_relative_path() && collection.empty(); up = up.parent_path())
    if (fs::path here = up.parent_path() / "shared/data/safetensors_malformed"; fs::exists(here / "MANIFEST.jsonl"))
      collection = here;
  if (collection.empty()) GTEST_SKIP() << "no shared/data/safetensors_malformed beside the repository";
  std::ifstream manifest(collection / "MANIFEST.jsonl");
  int files = 0;
  for (std::string line; std::getline(manifest, line); ++files) {
    auto row = nlohmann::json::parse(line);
    std::string file = (collection / row["file"].get<std::string>()).string();
    SCOPED_TRACE(line);
    if (row["valid"]) {
      EXPECT_NO_THROW({
        for (auto& [name, t] : load_safetensors(file)) t.to_vector();
      });
    } else {
      EXPECT_THROW(load_safetensors(file), ValueError);
    }
  }
  EXPECT_GT(files, 30);
}

}  // namespace
}  // namespace sf::io
