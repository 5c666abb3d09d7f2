#include "scaffolding/data/video_dataset.h"

#include <set>

#include "scaffolding/data/dataloader.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/io/video/video_writer.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {
namespace {

// Folders of pictures, which need no library of videos: frame n of clip i is 10 i + n bright.
class VideoFolderTest : public io::TestFolder {
 protected:
  VideoFolderTest() {
    std::string table;
    for (int64_t i = 0; i < 4; ++i) {
      io::VideoWriter video(path("clip" + std::to_string(i)));
      for (int64_t n = 0; n < 8; ++n) video.append(full({12, 16, 3}, Scalar(10 * i + n)).to(kUInt8));
      video.close();
      table += "{\"file_name\": \"clip" + std::to_string(i) + "\", \"text\": \"number " + std::to_string(i) + "\"}\n";
    }
    write("metadata.jsonl", table);
  }
};

TEST_F(VideoFolderTest, a_loader_gives_batches_of_clips) {
  auto clips = std::make_shared<VideoFolder>(
      folder_.string(), VideoFolderOptions{.num_frames = 3, .frame_stride = 2, .size = {8, 8}, .random_start = false});
  EXPECT_TRUE(clips->has_captions());
  DataLoader loader(clips, {.batch_size = 2, .num_workers = 2});
  int64_t i = 0;
  for (Batch& batch : loader) {
    ASSERT_EQ(batch.image.shape(), (Shape{2, 3, 3, 8, 8}));
    for (int64_t k = 0; k < 2; ++k, ++i) {
      EXPECT_EQ(batch.caption[size_t(k)], "number " + std::to_string(i));
      for (int64_t t = 0; t < 3; ++t) {
        const Tensor frame = batch.image.select(0, k).select(1, t).contiguous();
        EXPECT_EQ(frame.data<uint8_t>()[0], 10 * i + 2 * t);
        EXPECT_EQ(frame.data<uint8_t>()[191], 10 * i + 2 * t);
      }
    }
  }
  EXPECT_EQ(i, 4);
}

TEST_F(VideoFolderTest, a_clip_begins_by_the_samples_random_numbers) {
  VideoFolder clips(folder_.string(), {.num_frames = 3});
  std::set<int> starts;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SampleRandom random(seed), same(seed);
    const int start = clips.get(0, random).image.data<uint8_t>()[0];
    EXPECT_EQ(clips.get(0, same).image.data<uint8_t>()[0], start);
    starts.insert(start);
  }
  EXPECT_EQ(starts, (std::set<int>{0, 1, 2, 3, 4, 5}));
  SampleRandom random(1);
  VideoFolder longer(folder_.string(), {.num_frames = 9});
  SF_EXPECT_ERROR(BrokenSample, "has 8 frames, a clip of 9 with stride 1 needs 9", longer.get(0, random));
}

}  // namespace
}  // namespace sf::data
