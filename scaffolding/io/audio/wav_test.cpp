#include "scaffolding/io/audio/wav.h"

#include <cmath>
#include <limits>

#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::io {
namespace {

class WavTest : public TestFolder {};

std::string written(const Tensor& audio, int64_t rate, WavEncoding encoding) {
  MemorySink sink;
  save_wav(sink, audio, rate, encoding);
  return sink.bytes;
}
Audio read(const std::string& s) { return load_wav(Bytes::copy(s.data(), s.size(), "x.wav")); }
double largest(const Tensor& x) { return amax(abs(x)).item(); }

TEST_F(WavTest, sound_comes_back_in_each_encoding) {
  manual_seed(3);
  for (int64_t channels : {1, 2, 3, 8}) {
    const Tensor x = rand({channels, 1001}) * 2 - 1;
    for (auto [encoding, step] : {std::pair{WavEncoding::PCM16, 1.0 / 32768},
                                  {WavEncoding::PCM24, 1.0 / 8388608},
                                  {WavEncoding::Float32, 0.}}) {
      save_wav(path("a.wav"), x, 24000, encoding);
      const Audio y = load_wav(path("a.wav"));
      EXPECT_EQ(y.sampling_rate, 24000);
      ASSERT_EQ(y.samples.shape(), x.shape());
      EXPECT_LE(largest(y.samples - x), step);
      EXPECT_EQ(bytes_of(path("a.wav")), written(y.samples, 24000, encoding));  // what was read is written as it was
    }
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(WavTest, the_head_is_what_other_programs_read) {
  const std::string two = written(zeros({2, 3}), 48000, WavEncoding::PCM16);
  ASSERT_EQ(two.size(), 44u + 12);
  EXPECT_EQ(two.substr(0, 22), std::string("RIFF\x30\0\0\0WAVEfmt \x10\0\0\0\1\0", 22));
  EXPECT_EQ(two.substr(36, 8), std::string("data\x0C\0\0\0", 8));
  EXPECT_EQ(written(zeros({3}), 8000, WavEncoding::PCM24).size() % 2, 0u);  // of 9 bytes
}

TEST_F(WavTest, audio_comes_in_either_order_and_in_integers) {
  const Tensor x = rand({2, 100}) - 0.5;
  const std::string want = written(x, 16000, WavEncoding::PCM16);
  EXPECT_EQ(written(x.transpose(0, 1), 16000, WavEncoding::PCM16), want);
  EXPECT_EQ(written(round(x * 32768).to(kInt16), 16000, WavEncoding::PCM16), want);
  EXPECT_EQ(read(written(x.select(0, 0), 16000, WavEncoding::PCM16)).samples.shape(), (Shape{1, 100}));
}

TEST_F(WavTest, what_is_too_loud_is_clamped) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), most = std::numeric_limits<float>::infinity();
  const Tensor x = tensor(std::vector<float>{2, -2, nan, most, -most, 1}, {1, 6});
  const Tensor y = read(written(x, 16000, WavEncoding::PCM16)).samples;
  const std::vector<float> want{32767 / 32768.f, -1, 0, 32767 / 32768.f, -1, 32767 / 32768.f};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(y.data<float>()[i], want[i]) << i;
}

TEST_F(WavTest, impossible_sound_is_refused) {
  SF_EXPECT_ERROR(ValueError, "save_wav: audio must be [channels, samples] of 1 to 8 channels",
                  written(zeros({9, 10}), 16000, WavEncoding::PCM16));
  SF_EXPECT_ERROR(ValueError, "got [2, 0]", written(zeros({2, 0}), 16000, WavEncoding::PCM16));
  SF_EXPECT_ERROR(ValueError, "got [1, 2, 3]", written(zeros({1, 2, 3}), 16000, WavEncoding::PCM16));
  SF_EXPECT_ERROR(TypeError, "floating in [-1, 1], or int16",
                  written(zeros({2, 3}, kInt32), 16000, WavEncoding::PCM16));
  SF_EXPECT_ERROR(ValueError, "sampling_rate must be 1 to 768000, got 0", written(zeros({3}), 0, WavEncoding::PCM16));
  SF_EXPECT_ERROR(ValueError, "encoding must be pcm16, pcm24 or float32, got 'mp3'", wav_encoding("mp3"));
  SF_EXPECT_ERROR(RuntimeError, "nowhere", save_wav(path("nowhere/a.wav"), zeros({3}), 16000));
}

// A file with some bytes changed.
std::string changed(std::string s, size_t at, const std::string& to) { return s.replace(at, to.size(), to); }

TEST_F(WavTest, damaged_files_are_refused) {
  const std::string good = written(zeros({2, 4}), 24000, WavEncoding::PCM16);
  for (size_t n = 0; n < good.size(); ++n) EXPECT_THROW(read(good.substr(0, n)), ValueError) << n;
  SF_EXPECT_ERROR(ValueError, "x.wav: is no WAV file", read(changed(good, 0, "RIFL")));
  SF_EXPECT_ERROR(NotSupported, "is a RF64 file", read(changed(good, 0, "RF64")));
  SF_EXPECT_ERROR(NotSupported, "holds mu-law", read(changed(good, 20, "\7")));
  SF_EXPECT_ERROR(NotSupported, "PCM samples of 12 bits", read(changed(good, 34, "\x0C")));
  SF_EXPECT_ERROR(ValueError, "must have 1 to 8 channels, got 0", read(changed(good, 22, std::string(1, '\0'))));
  SF_EXPECT_ERROR(ValueError, "samples a second, got 0", read(changed(good, 24, std::string(4, '\0'))));
  SF_EXPECT_ERROR(ValueError, "take 4 bytes, and it says 5", read(changed(good, 32, "\5")));
  SF_EXPECT_ERROR(ValueError, "no whole samples of 4 bytes", read(changed(good, 40, "\x0F")));
  SF_EXPECT_ERROR(ValueError, "more bytes are needed", read(changed(good, 40, "\xFF\xFF\xFF\xFF")));
  SF_EXPECT_ERROR(ValueError, "its fmt chunk has 8 bytes", read(changed(good, 16, "\x08")));
  SF_EXPECT_ERROR(ValueError, "has no data chunk", read(changed(good, 36, "dada")));
  SF_EXPECT_ERROR(ValueError, "comes before its fmt chunk", read(changed(good, 12, "fmd ")));
  SF_EXPECT_ERROR(ValueError, "is no WAV, mp4", load_audio(Bytes::copy("hello", 5, "a.txt")));
}

}  // namespace
}  // namespace sf::io
