#include <cstring>

#include "scaffolding/io/pictures/animation.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/io/video/video_container.h"
#include "scaffolding/io/video/video_reader.h"
#include "scaffolding/io/video/video_writer.h"
#include "scaffolding/ops/ops.h"

namespace sf::io {
namespace {

class VideoTest : public TestFolder {};

// [H, W, 3]; its corner is the frame's number.
Tensor numbered(int64_t n) {
  Tensor x = zeros({16, 32, 3}, kUInt8);
  std::memset(x.data_ptr(), int(n), 3);
  return x;
}

std::string sized(uint32_t size, const std::string& kind, const std::string& content = "") {
  std::string s;
  for (int i = 3; i >= 0; --i) s += char(size >> 8 * i);
  return s + kind + content;
}

Bytes bytes(const std::string& s) { return Bytes::copy(s.data(), s.size(), "x.mp4"); }

TEST_F(VideoTest, folders_of_pictures_come_back) {
  save_video(path("frames"), stack({numbered(3), numbered(1), numbered(2)}), {.fps = 25, .metadata = {{"seed", "7"}}});
  VideoReader video(path("frames"));
  EXPECT_EQ(video.size(), 3);
  EXPECT_EQ(video.info().fps, 25);
  EXPECT_EQ(video.info().metadata.at("seed"), "7");
  const Tensor x = video.frames({2, 0, 2});
  EXPECT_EQ(x.shape(), (Shape{3, 16, 32, 3}));
  EXPECT_EQ(x.data<uint8_t>()[0], 2);
  EXPECT_EQ(x.select(0, 1).data<uint8_t>()[0], 3);
  EXPECT_EQ(x.select(0, 2).data<uint8_t>()[0], 2);
  SF_EXPECT_ERROR(IndexError, "a frame's number must be 0 to 2, got 3", video.frame(3));
}

TEST_F(VideoTest, the_format_is_that_of_the_path) {
  for (auto& [path, format] : std::map<std::string, VideoFormat>{{"a.MP4", VideoFormat::MP4},
                                                                 {"a.m4v", VideoFormat::MP4},
                                                                 {"x/a.webm", VideoFormat::WebM},
                                                                 {"a.gif", VideoFormat::GIF},
                                                                 {"frames", VideoFormat::Pictures},
                                                                 {"v1.2/", VideoFormat::Pictures},
                                                                 {"f/%04d.png", VideoFormat::Pictures}})
    EXPECT_EQ(video_format(path), format) << path;
  SF_EXPECT_ERROR(ValueError, "must end in .mp4", video_format("a.png"));
  SF_EXPECT_ERROR(ValueError, "must end in .mp4", video_format(""));
}

TEST_F(VideoTest, a_gif_comes_back) {
  if (!can_write(VideoFormat::GIF)) GTEST_SKIP() << "built without giflib";
  VideoWriter writer(path("a.gif"), {.fps = 20});
  for (int64_t n = 0; n < 30; ++n) writer.append(numbered(8 * n));
  EXPECT_EQ(files(), 1u);  // the temporary one
  writer.close();
  VideoReader video(path("a.gif"));
  ASSERT_EQ(video.size(), 30);
  for (int64_t i : {29, 5, 6, 0}) EXPECT_EQ(video.frame(i).data<uint8_t>()[0], 8 * i);
}

// Of 2 x 1 pixels with the LZW codes `packed`.
std::string gif(const std::string& packed) {
  return std::string("GIF89a\2\0\1\0\x80\0\0\1\2\3\4\5\6,\0\0\0\0\2\0\1\0\0", 29) + packed + ";";
}

TEST_F(VideoTest, damaged_gifs_are_refused) {
  auto read = [](const std::string& s) { return VideoReader(Bytes::copy(s.data(), s.size(), "x.gif")).frame(0); };
  const Tensor x = read(gif(std::string("\2\2\x44\x0A\0", 5)));  // clear, 0, 1 in three bits each, end
  EXPECT_EQ(x.data<uint8_t>()[0], 1);
  EXPECT_EQ(x.data<uint8_t>()[5], 6);
  SF_EXPECT_ERROR(ValueError, "an impossible size of its codes", read(gif(std::string("\x0C\2\x44\x0A\0", 5))));
  SF_EXPECT_ERROR(ValueError, "a frame ends too early", read(gif(std::string("\2\1\x44\0", 4))));
  SF_EXPECT_ERROR(ValueError, "a frame ends too early", read(gif(std::string("\2\1\x2C\0", 4))));      // clear, end
  SF_EXPECT_ERROR(ValueError, "a code without a meaning", read(gif(std::string("\2\2\x3C\1\0", 5))));  // clear, 7
  SF_EXPECT_ERROR(ValueError, "a colour that its palette lacks", read(gif(std::string("\2\2\x5C\x0A\0", 5))));
  SF_EXPECT_ERROR(ValueError, "it ends too early", read(gif(std::string("\2\2\x44\x0A\0", 5)).substr(0, 34)));
  SF_EXPECT_ERROR(ValueError, "it has no frame", read(std::string("GIF89a\2\0\1\0\0\0\0;", 14)));
}

TEST_F(VideoTest, containers_that_were_cut_short_are_refused) {
  const std::string head = sized(16, "ftyp", std::string(8, 'x')), index = sized(12, "moov", "abcd");
  EXPECT_EQ(video_container(bytes(head)), VideoContainer::MP4);
  EXPECT_EQ(video_container(bytes("no such")), VideoContainer::None);
  auto check = [](const std::string& s) { check_whole(bytes(s), VideoContainer::MP4); };
  check(head + index);
  check(head + index + sized(0, "mdat", "to the end"));
  check(head + index + sized(1, "mdat", std::string("\0\0\0\0\0\0\0\x12", 8) + "ab"));
  SF_EXPECT_ERROR(ValueError, "was cut short: it has 27 bytes of 28", check((head + index).substr(0, 27)));
  SF_EXPECT_ERROR(ValueError, "has no index of its frames (moov)", check(head));
  SF_EXPECT_ERROR(ValueError, "is damaged: a box of 7 bytes", check(head + sized(7, "moov")));
  SF_EXPECT_ERROR(ValueError, "was cut short", check(head + index + sized(1, "mdat", std::string(8, '\xFF'))));

  const std::string ebml = "\x1A\x45\xDF\xA3\x84webm", segment = "\x18\x53\x80\x67";
  auto check_webm = [](const std::string& s) { check_whole(bytes(s), VideoContainer::Matroska); };
  EXPECT_EQ(video_container(bytes(ebml)), VideoContainer::Matroska);
  check_webm(ebml + segment + "\x84" + "abcd");
  check_webm(ebml + segment + "\xFF" + "no size known");
  SF_EXPECT_ERROR(ValueError, "was cut short", check_webm(ebml + segment + "\x85" + "abcd"));
  SF_EXPECT_ERROR(ValueError, "has no frames", check_webm(ebml));
  SF_EXPECT_ERROR(ValueError, "is damaged: no size", check_webm(ebml + segment + std::string(4, '\0')));
}

}  // namespace
}  // namespace sf::io
