#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "scaffolding/data/data.h"
#include "scaffolding/data/test_tar.h"

namespace sf::data {
namespace {

namespace fs = std::filesystem;

std::string png(int value, int64_t height = 4, int64_t width = 4) {
  Tensor t = empty({3, height, width}, kUInt8);
  std::memset(t.data_ptr(), value, t.nbytes());
  return io::encode_image(t, io::ImageFormat::PNG);
}

template <class E = ValueError> void refused(const std::string& text, const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << "was accepted; expected '" << text << "'";
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

class DatasetTest : public testing::Test {
 protected:
  DatasetTest() {
    folder_ = fs::temp_directory_path() / ("sf_dataset_" + std::to_string(getpid()) +
                                           testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  ~DatasetTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name = "") const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  static Sample get(const Dataset& d, int64_t i) {
    SampleRandom r(1);
    return d.get(i, r);
  }
  fs::path folder_;
};

TEST_F(DatasetTest, a_folder_with_metadata_has_its_captions) {
  write("a.png", png(1));
  write("sub/b.png", png(2));
  write("metadata.jsonl",
        "{\"file_name\": \"sub/b.png\", \"text\": \"two\", \"n\": 2}\n\n{\"file_name\": \"a.png\", \"text\": null}\n");
  ImageFolder d(path());
  ASSERT_EQ(d.size(), 2);
  EXPECT_TRUE(d.has_captions());
  Sample s = get(d, 0);
  EXPECT_EQ(s.name, "sub/b.png");
  EXPECT_EQ(s.caption, "two");
  EXPECT_EQ(s.image.shape(), (Shape{3, 4, 4}));
  EXPECT_EQ(s.image[0][0][0].item(), 2);
  EXPECT_EQ(get(d, 1).caption, "");
  EXPECT_EQ(d.metadata(0), "{\"file_name\": \"sub/b.png\", \"text\": \"two\", \"n\": 2}");
}

TEST_F(DatasetTest, a_missing_caption_column_lists_those_that_are_there) {
  write("a.png", png(1));
  write("metadata.jsonl",
        "{\"file_name\": \"a.png\", \"caption\": \"c\", \"style\": \"s\"}\n{\"file_name\": \"a.png\", \"caption\": "
        "\"c\"}\n");
  refused("metadata.jsonl line 1: has no column 'title'; there are 'caption', 'file_name', 'style'",
          [&] { ImageFolder(path(), {.caption_column = "title"}); });
  refused("line 2: has no column 'style'", [&] { ImageFolder(path(), {.caption_column = "style"}); });
  EXPECT_EQ(ImageFolder(path()).caption(1), "c");
}

TEST_F(DatasetTest, metadata_that_is_malformed_is_refused_with_its_line) {
  for (auto [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"{\"file_name\": \"a.png\"}\n[1]", "line 2: must be a JSON object"},
           {"{\"file_name\"", "line 1: is no JSON"},
           {"{\"text\": \"x\"}", "has no column 'file_name'"},
           {"{\"file_name\": 3}", "'file_name' must be a string, got number"},
           {"{\"file_name\": \"../a.png\"}", "below the folder, got '../a.png'"},
           {"{\"file_name\": \"/etc/x.png\"}", "below the folder"},
           {"{\"file_name\": \"a\", \"text\": \"\xff\"}", "is no JSON"},
           {"{\"file_name\":" + std::string(100, '[') + std::string(100, ']') + "}", "deeper than 64"},
           {"\n \n", "has no rows"}}) {
    write("metadata.jsonl", text);
    refused(why, [&] { ImageFolder{path()}; });
  }
}

TEST_F(DatasetTest, csv_quotes_are_understood) {
  write("a.png", png(1));
  write("metadata.csv", "text,file_name\r\n\"a \"\"quoted\"\", cat\nin two lines\",a.png\r\nplain,a.png");
  ImageFolder d(path());
  ASSERT_EQ(d.size(), 2);
  EXPECT_EQ(d.caption(0), "a \"quoted\", cat\nin two lines");
  EXPECT_EQ(d.caption(1), "plain");
  write("metadata.csv", "text,file_name\n\"open,a.png");
  refused("line 2: a quote is not closed", [&] { ImageFolder{path()}; });
  write("metadata.csv", "text,file_name\nx");
  refused("line 2: has 1 cells, the header 2", [&] { ImageFolder{path()}; });
}

TEST_F(DatasetTest, captions_may_lie_beside_the_pictures) {
  write("a.png", png(1));
  write("a.txt", "a cat \n");
  write("b.png", png(2));
  refused("1 of 2 pictures", [&] { ImageFolder{path()}; });
  EXPECT_EQ(ImageFolder(path(), {.allow_missing_captions = true}).caption(1), "");
  write("b.txt", "\xff\xfe");
  ImageFolder d(path());
  EXPECT_EQ(get(d, 0).caption, "a cat");
  refused<BrokenSample>("not UTF-8", [&] { get(d, 1); });
}

TEST_F(DatasetTest, subfolders_are_classes) {
  for (std::string n : {"dog/1.png", "cat/1.png", "cat/deep/2.png", "cat.b/3.png"}) write(n, png(1));
  ImageFolder d(path());
  EXPECT_EQ(d.classes(), (std::vector<std::string>{"cat", "cat.b", "dog"}));
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < d.size(); ++i) labels.push_back(get(d, i).target.item_int());
  EXPECT_EQ(labels, (std::vector<int64_t>{1, 0, 0, 2}));  // in the order of the paths
}

TEST_F(DatasetTest, what_is_not_there_is_said_at_construction) {
  refused("there is no folder", [&] { ImageFolder{path("nowhere")}; });
  refused("holds no pictures", [&] { ImageFolder{path()}; });
  refused("needs a metadata.jsonl", [&] {
    write("a.png", png(1));
    ImageFolder(path(), {.caption_column = "text"});
  });
  refused<RuntimeError>("cannot open", [&] { WebDataset({path("x.tar")}); });
  refused("at least one path", [] { ImageFiles(std::vector<std::string>{}); });
  refused("one for each", [] { ImageFiles({"a", "b"}, {"c"}); });
  refused("{first..last}", [] { WebDataset({"x{5..2}.tar"}); });
  EXPECT_THROW(get(ImageFolder(path()), 1), IndexError);
}

TEST_F(DatasetTest, a_tar_groups_by_key) {
  write("0.tar", tar_entry("./s/", "", '5') + tar_entry("s/1.png", png(1)) + tar_entry("s/1.txt", "one\n") +
                     tar_entry("s/1.cls", "7") + tar_entry("s/2.txt", "two") + tar_entry("s/2.png", png(2)) +
                     tar_entry("s/2.cls", "3") + kTarEnd);
  write("1.tar", tar_entry("3.jpeg", io::encode_image(empty({3, 4, 4}, kUInt8).fill_(9), io::ImageFormat::JPEG)) +
                     tar_entry("3.txt", "three") + kTarEnd);
  WebDataset d({path("{0..1}.tar")});
  ASSERT_EQ(d.size(), 3);
  Sample s = get(d, 1);
  EXPECT_EQ(s.name, "s/2.png");
  EXPECT_EQ(s.caption, "two");
  EXPECT_EQ(s.target.item_int(), 3);
  EXPECT_EQ(s.image[0][0][0].item(), 2);
  EXPECT_EQ(get(d, 2).caption, "three");
  EXPECT_EQ(WebDataset({path()}).size(), 3);
}

TEST_F(DatasetTest, a_tar_with_json_or_metadata) {
  write("j.tar",
        tar_entry("1.png", png(1)) + tar_entry("1.json", "{\"caption\": \"one\", \"alt\": \"eins\"}") + kTarEnd);
  EXPECT_EQ(get(WebDataset({path("j.tar")}), 0).caption, "one");
  EXPECT_EQ(get(WebDataset({path("j.tar")}, {.caption_column = "alt"}), 0).caption, "eins");
  refused("has no column 'x'; there are 'alt', 'caption'",
          [&] { WebDataset({path("j.tar")}, {.caption_column = "x"}); });
  write("m.tar", tar_entry("metadata.jsonl", "{\"file_name\": \"p/1.png\", \"caption\": \"one\"}") +
                     tar_entry("1.png", png(5), '0', "p") + kTarEnd);
  EXPECT_EQ(get(WebDataset({path("m.tar")}), 0).image[2][3][3].item(), 5);
  write("m.tar", tar_entry("metadata.jsonl", "{\"file_name\": \"gone.png\", \"caption\": \"one\"}") + kTarEnd);
  refused("the archive has no 'gone.png'", [&] { WebDataset({path("m.tar")}); });
}

TEST_F(DatasetTest, long_names_of_pax_and_gnu_are_read) {
  std::string name = std::string(120, 'd') + "/x.png", record = " path=" + name + "\n";
  record = std::to_string(record.size() + 3) + record;
  write("a.tar", tar_entry("pax", record, 'x') + tar_entry("short.png", png(1)) +
                     tar_entry("././@LongLink", name + std::string(1, '\0'), 'L') + tar_entry("other.png", png(2)) +
                     tar_entry("z.png", png(3)) + kTarEnd);
  TarFile t(path("a.tar"));
  ASSERT_EQ(t.members().size(), 3u);
  EXPECT_EQ(t.members()[0].name, name);
  EXPECT_EQ(t.members()[1].name, name);
  EXPECT_EQ(t.members()[2].name, "z.png");
  EXPECT_EQ(t.read(t.members()[2]).size(), png(3).size());
}

TEST_F(DatasetTest, hostile_tars_are_refused) {
  auto tar = [&](const std::string& bytes, const std::string& why) {
    write("x.tar", bytes);
    refused(why, [&] { TarFile{path("x.tar")}; });
  };
  std::string good = tar_entry("1.png", png(1));
  tar("\x1f\x8b" + std::string(600, 'x'), "is no tar archive");
  tar(good.substr(0, 300), "ends inside a header");
  tar(good.substr(0, 520), "cut short");
  std::string bad = good + good;
  bad[good.size() + 3] ^= 1;
  tar(bad, "wrong checksum of the header at byte");
  std::string huge = tar_entry("1.png", "");
  auto sized = [&](const std::string& size) {
    std::string h = huge;
    std::memcpy(h.data() + 124, size.data(), 12);
    std::memset(h.data() + 148, ' ', 8);
    unsigned sum = 0;
    for (char c : h) sum += uint8_t(c);
    std::snprintf(h.data() + 148, 8, "%06o", sum);
    return h;
  };
  tar(sized("77777777777\0"), "cut short");
  tar(sized(std::string("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12)), "cut short");
  tar(sized(std::string(1, '\x80') + std::string(11, '\xff')), "a size that is no number");
  tar(sized("zz         \0"), "a size that is no number");
  tar(tar_entry("p", "9999999 path=x\n", 'x') + good, "a pax header");
  tar(tar_entry("p", "0 path=x\n", 'x') + good, "a pax header");
  tar(tar_entry("p", std::string((1 << 20) + 1, 'x'), 'L') + good, "an extended header of");
  uint32_t s = 3;
  for (int i = 0; i < 500; ++i) {  // random damage: refused or listed
    std::string x = good + tar_entry("1.txt", "one");
    s = s * 1664525 + 1013904223;
    x[(s >> 8) % x.size()] = char(s >> 20);
    write("x.tar", x);
    try {
      WebDataset({path("x.tar")});
    } catch (const Error&) {}
  }
}

TEST_F(DatasetTest, a_broken_picture_is_named_and_remembered) {
  write("a.png", png(1));
  write("b.png", png(2).substr(0, 40));
  write("c.jpg", "");
  ImageFolder d(path());
  EXPECT_EQ(get(d, 0).image.size(1), 4);
  refused<BrokenSample>("b.png: is no whole PNG picture", [&] { get(d, 1); });
  refused<BrokenSample>("b.png", [&] { get(d, 1); });
  refused<BrokenSample>("c.jpg: is empty", [&] { get(d, 2); });
  ASSERT_EQ(d.skipped().size(), 2u);
  EXPECT_EQ(d.skipped()[0].name, "b.png");
}

TEST_F(DatasetTest, files_are_taken_as_they_are_named) {
  write("a.png", png(1));
  write("b.dat", png(2));
  ImageFiles d({path("b.dat"), path("a.png")}, {"zwei", "eins"}, {.read = {.mode = io::ImageMode::L}});
  EXPECT_EQ(get(d, 0).image.shape(), (Shape{1, 4, 4}));
  EXPECT_EQ(get(d, 0).caption, "zwei");
  EXPECT_EQ(d.info(1).width, 4);
}

TEST(Collate, refuses_what_does_not_stack) {
  auto sample = [](const std::string& name, const Shape& shape) {
    Sample s;
    s.name = name;
    s.image = empty(shape, kUInt8).fill_(1);
    return s;
  };
  refused("'a' is [3, 4, 4] uint8 and 'b' [3, 4, 5] uint8", [&] {
    collate({sample("a", {3, 4, 4}), sample("b", {3, 4, 5})});
  });
  Sample labelled = sample("b", {3, 4, 4});
  labelled.target = empty({}, kInt64).fill_(1);
  refused("'b' has a target, 'a' has none", [&] { collate({sample("a", {3, 4, 4}), labelled}); });
  Sample turned = sample("c", {4, 5, 3});
  turned.image = turned.image.permute({2, 0, 1});
  turned.image[0][2][3].fill_(77);
  Batch b = collate({sample("a", {3, 4, 5}), turned});
  EXPECT_TRUE(b.image.is_contiguous());
  EXPECT_EQ(b.image[1].to_vector(), turned.image.to_vector());
}

}  // namespace
}  // namespace sf::data
