#include "scaffolding/io/checkpoint.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/formats/gguf.h"
#include "scaffolding/io/formats/npy.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/formats/sharded.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/io/formats/zip.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::io {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(SF_SOURCE_DIR) / "tests/golden/checkpoints";

class CheckpointFile : public TestFolder {};

void expect_equal(const Tensor& got, const Tensor& want, const std::string& name) {
  EXPECT_EQ(got.dtype(), want.dtype()) << name;
  EXPECT_EQ(str(got.shape()), str(want.shape())) << name;
  EXPECT_EQ(got.to_vector(), want.to_vector()) << name;
}

// Files by PyTorch, NumPy and gguf-py; tests/golden/make_golden_checkpoints.py.
TEST_F(CheckpointFile, files_of_other_programs_hold_what_these_say) {
  int files = 0;
  for (auto& e : fs::directory_iterator(kGolden)) {
    std::string expected = e.path().string();
    constexpr std::string_view kEnd = ".expected.safetensors";
    if (!expected.ends_with(kEnd)) continue;
    std::string file = expected.substr(0, expected.size() - kEnd.size());
    SCOPED_TRACE(file);
    auto want = load_safetensors(expected);
    auto got = load_checkpoint(file);
    ASSERT_EQ(got.size(), want.size());
    auto opened = open_checkpoint(file);
    for (auto& [name, t] : want) {
      ASSERT_TRUE(got.count(name)) << name;
      expect_equal(got[name], t, name);
      EXPECT_EQ(str(opened->entry(name).shape), str(t.shape()));
    }
    ++files;
  }
  EXPECT_GE(files, 10);
}

TEST_F(CheckpointFile, kinds_are_recognised_by_content) {
  fs::copy(kGolden / "zip.pt", path("a.safetensors"));
  fs::copy(kGolden / "types.gguf", path("b.pt"));
  fs::copy(kGolden / "stored.npz", path("c"));
  fs::copy(kGolden / "column.npy", path("d.bin"));
  fs::copy(kGolden / "legacy.pt", path("e.gguf"));
  fs::copy(kGolden / "types.gguf.expected.safetensors", path("f.npz"));
  EXPECT_STREQ(open_checkpoint(path("a.safetensors"))->kind(), "torch");
  EXPECT_STREQ(open_checkpoint(path("b.pt"))->kind(), "gguf");
  EXPECT_STREQ(open_checkpoint(path("c"))->kind(), "npz");
  EXPECT_STREQ(open_checkpoint(path("d.bin"))->kind(), "npy");
  EXPECT_STREQ(open_checkpoint(path("e.gguf"))->kind(), "torch");
  EXPECT_STREQ(open_checkpoint(path("f.npz"))->kind(), "safetensors");
  SF_EXPECT_ERROR(ValueError, "there is no tensor 'x'", open_checkpoint(path("f.npz"))->get("x"));
  SF_EXPECT_ERROR(ValueError, "there is no tensor 'x'", open_checkpoint(path("a.safetensors"))->get("x"));
  SF_EXPECT_ERROR(RuntimeError, "cannot open", open_checkpoint(path("absent")));
}

// A header of 640 bytes begins with 80 02, as a pickle of protocol 2 does.
TEST_F(CheckpointFile, safetensors_with_headers_of_any_length) {
  for (size_t padding = 0; padding < 1500; padding += 8) {
    MemorySink file;
    save_safetensors({{"x", ones({2})}}, file, {{"padding", std::string(padding, 'x')}});
    auto opened = open_checkpoint(Bytes::take(file.bytes, "file"));
    EXPECT_STREQ(opened->kind(), "safetensors");
    EXPECT_EQ(opened->get("x").to_vector(), (std::vector<double>{1, 1}));
  }
}

TEST_F(CheckpointFile, a_folder_stands_for_its_one_checkpoint) {
  SF_EXPECT_ERROR(ValueError, "without a checkpoint", open_checkpoint(folder_.string()));
  save_safetensors({{"a", tensor({1})}}, path("model.safetensors"));
  EXPECT_STREQ(open_checkpoint(folder_.string())->kind(), "safetensors");
  save_safetensors({{"a", tensor({1})}}, path("model.fp16.safetensors"));
  SF_EXPECT_ERROR(ValueError, "several checkpoints", open_checkpoint(folder_.string()));
}

// Every file that tests/golden/make_malformed.py made is refused with the reason that its manifest gives, and its name.
TEST_F(CheckpointFile, malformed_files_are_refused_for_the_right_reason) {
  fs::path folder = fs::path(SF_SOURCE_DIR) / "tests/malformed";
  std::ifstream manifest(folder / "MANIFEST.jsonl");
  int files = 0;
  for (std::string line; std::getline(manifest, line); ++files) {
    auto row = nlohmann::json::parse(line);
    std::string file = (folder / row["file"].get<std::string>()).string(), text = row["error"];
    SCOPED_TRACE(line);
    auto read = [&] {
      if (file.ends_with(".pt") || file.ends_with(".pkl")) load_torch(file);
      else
        for (auto& [name, t] : load_checkpoint(file)) t.to_vector();
    };
    std::string what = error_of<Error>(read);
    EXPECT_TRUE(what.find(text.substr(0, text.find('|'))) != std::string::npos ||
                what.find(text.substr(text.find('|') + 1)) != std::string::npos)
        << what;
    EXPECT_NE(what.find(fs::path(file).filename().string()), std::string::npos) << what;
  }
  EXPECT_GT(files, 100);
}

// What is told of a deflated file is told without inflating it: here the bytes of its tensor are damaged.
TEST_F(CheckpointFile, shapes_of_a_deflated_file_are_told_without_its_tensors) {
  const std::string whole = bytes_of(std::string(SF_SOURCE_DIR) + "/tests/fuzz_corpus/torch_file/deflated.pt");
  auto good = open_checkpoint(Bytes::borrow(whole.data(), whole.size(), "good"));
  ASSERT_EQ(good->names().size(), 1u);
  const std::string name = good->names()[0];
  EXPECT_EQ(good->get(name).to_vector(), std::vector<double>(4, 0));
  std::string damaged = whole;
  const ZipReader zip(Bytes::borrow(whole.data(), whole.size(), "archive"));
  const ZipEntry* data = zip.find("archive/data/0");
  ASSERT_TRUE(data && data->method == 8);
  damaged[size_t(data->offset + data->compressed - 1)] ^= 0x55;
  auto bad = open_checkpoint(Bytes::borrow(damaged.data(), damaged.size(), "bad"));
  EXPECT_EQ(bad->names(), good->names());
  EXPECT_EQ(bad->entry(name).shape, Shape({4}));
  EXPECT_EQ(bad->entry(name).dtype, "float32");
  SF_EXPECT_ERROR(ValueError, "are damaged", bad->get(name));
  EXPECT_EQ(zip.begin(*data, 3).size, 3u);
  EXPECT_EQ(zip.begin(*data, 100).size, 16u);
}

TEST_F(CheckpointFile, every_prefix_of_a_file_is_refused) {
  for (std::string name : {"protocol4.pt", "plain4.pkl", "column.npy", "deflated.npz"}) {
    std::string whole = bytes_of((kGolden / name).string());
    for (size_t n = 0; n < whole.size(); n += n < 200 ? 1 : 13) {
      auto file = Bytes::borrow(whole.data(), n, "cut");
      EXPECT_THROW(
          {
            auto c = open_checkpoint(file);
            for (auto& t : c->names()) c->get(t);
          },
          Error)
          << name << " cut to " << n;
    }
  }
}

TEST_F(CheckpointFile, the_shared_foreign_checkpoints_load) {
  fs::path folder;
  if (const char* set = std::getenv("SF_SHARED_DATA")) folder = fs::path(set) / "foreign_checkpoints";
  else folder = fs::path(SF_SOURCE_DIR).parent_path() / "shared/data/foreign_checkpoints";
  if (!fs::exists(folder)) GTEST_SKIP() << "no shared/data/foreign_checkpoints beside the repository";
  std::vector<double> eight = {1, 2, 3, 4, 5, 6, 7, 8}, ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(load_checkpoint(folder / "test.pt").at("test").to_vector(), eight);
  EXPECT_EQ(load_checkpoint(folder / "test_with_key.pt").at("model_state_dict.test").to_vector(), eight);
  Tensor column = load_checkpoint(folder / "fortran_tensor_3d.pth").at("tensor_fortran");
  EXPECT_EQ(str(column.shape()), "[2, 3, 4]");
  EXPECT_EQ(str(column.strides()), "[1, 2, 6]");
  EXPECT_EQ(column.to_vector()[23], 24);
  EXPECT_EQ(load_checkpoint(folder / "test.npy").at("array").to_vector(), ten);
  auto arrays = load_checkpoint(folder / "test.npz");
  ASSERT_GE(arrays.size(), 1u);
  EXPECT_EQ(arrays.at("x").to_vector(), ten);
  EXPECT_EQ(str(load_checkpoint(folder / "jfk-codes.safetensors").begin()->second.shape()), "[1, 2, 828]");
}

// ---- shards

std::map<std::string, Tensor> four_tensors() {
  // 40, 40, 40 and 400 bytes
  return {{"a", full({10}, 1.0)}, {"b", full({10}, 2.0)}, {"c", full({10}, 3.0)}, {"d", full({100}, 4.0)}};
}

TEST_F(CheckpointFile, shards_are_written_and_read) {
  std::string index = save_sharded_safetensors(four_tensors(), path("model.safetensors"), 100, {{"format", "pt"}});
  EXPECT_EQ(index, path("model.safetensors.index.json"));
  EXPECT_EQ(files(), 4u);
  auto json = nlohmann::json::parse(bytes_of(index));
  EXPECT_EQ(json["metadata"]["total_size"], 520);
  EXPECT_EQ(json["weight_map"]["b"], "model-00001-of-00003.safetensors");
  EXPECT_EQ(json["weight_map"]["c"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(json["weight_map"]["d"], "model-00003-of-00003.safetensors");
  EXPECT_EQ(SafetensorsFile(path("model-00001-of-00003.safetensors")).metadata().at("format"), "pt");
  for (auto& open : {index, folder_.string()}) {
    auto file = open_checkpoint(open);
    EXPECT_STREQ(file->kind(), "sharded");
    EXPECT_EQ(file->metadata().at("total_size"), "520");
    for (auto& [name, t] : four_tensors()) expect_equal(file->get(name), t, name);
  }
}

TEST_F(CheckpointFile, a_second_save_leaves_nothing_of_the_first) {
  save_sharded_safetensors(four_tensors(), path("model.safetensors"), 100);
  write("model-notes-00003.safetensors", "kept");
  EXPECT_EQ(save_sharded_safetensors(four_tensors(), path("model.safetensors"), 1000), path("model.safetensors"));
  EXPECT_EQ(files(), 2u);
  save_sharded_safetensors(four_tensors(), path("model.safetensors"), 200);
  EXPECT_EQ(files(), 4u);  // two shards, the index, the notes
  EXPECT_EQ(load_checkpoint(path("model.safetensors.index.json")).size(), 4u);
}

TEST_F(CheckpointFile, shards_are_opened_when_they_are_needed_and_checked_then) {
  save_sharded_safetensors(four_tensors(), path("model.safetensors"), 100);
  write("model-00003-of-00003.safetensors", "broken");
  auto file = open_checkpoint(path("model.safetensors.index.json"));
  EXPECT_EQ(file->get("a").to_vector()[0], 1);
  EXPECT_THROW(file->get("d"), ValueError);
  save_safetensors({{"other", tensor({1})}}, path("model-00002-of-00003.safetensors"));
  SF_EXPECT_ERROR(ValueError, "the index says that 'c' is in model-00002-of-00003.safetensors", file->get("c"));
  fs::remove(path("model-00003-of-00003.safetensors"));
  SF_EXPECT_ERROR(RuntimeError, "is not there", open_checkpoint(path("model.safetensors.index.json")));
}

TEST_F(CheckpointFile, shards_of_other_formats_are_read_through_their_index) {
  save_torch(Object::container(Object::Dict, {Object("a"), Object(tensor({1, 2}))}),
             path("pytorch_model-00001-of-00001.bin"));
  write("pytorch_model.bin.index.json", R"({"metadata": {}, "weight_map": {"a": "pytorch_model-00001-of-00001.bin"}})");
  EXPECT_EQ(load_checkpoint(path("pytorch_model.bin.index.json")).at("a").to_vector(), (std::vector<double>{1, 2}));
}

// ---- writing

TEST_F(CheckpointFile, a_private_file_stays_private_when_it_is_replaced) {
  save_torch(Object(int64_t(1)), path("x.pt"));
  fs::permissions(path("x.pt"), fs::perms::owner_read | fs::perms::owner_write);
  save_torch(Object(int64_t(2)), path("x.pt"));
  EXPECT_EQ(fs::status(path("x.pt")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(CheckpointFile, a_full_disk_keeps_the_previous_file) {
  Tensor big = full({1 << 16}, 1);  // 256 KiB
  Object tree = Object::container(Object::Dict, {Object("a"), Object(big)});
  save_safetensors({{"a", tensor({1})}}, path("x.safetensors"));
  save_torch(Object(tensor({1})), path("x.pt"));
  save_sharded_safetensors(four_tensors(), path("m.safetensors"), 100);
  size_t before = files();
  std::string old = bytes_of(path("x.safetensors")), old_torch = bytes_of(path("x.pt")),
              old_shard = bytes_of(path("m-00001-of-00003.safetensors"));
  rlimit limit, small;
  getrlimit(RLIMIT_FSIZE, &limit);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);  // write() then fails with EFBIG, as it does with ENOSPC on a full disk
  small = limit;
  small.rlim_cur = 1 << 15;
  setrlimit(RLIMIT_FSIZE, &small);
  SF_EXPECT_ERROR(RuntimeError, "cannot write", save_safetensors({{"a", big}}, path("x.safetensors")));
  SF_EXPECT_ERROR(RuntimeError, "cannot write", save_torch(tree, path("x.pt")));
  SF_EXPECT_ERROR(RuntimeError, "cannot write",
                  save_sharded_safetensors({{"a", tensor({5})}, {"b", big}}, path("m.safetensors"), 100));
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(bytes_of(path("x.safetensors")), old);
  EXPECT_EQ(bytes_of(path("x.pt")), old_torch);
  EXPECT_EQ(bytes_of(path("m-00001-of-00003.safetensors")), old_shard);
  EXPECT_EQ(files(), before);
}

}  // namespace
}  // namespace sf::io
