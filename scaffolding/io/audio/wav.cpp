#include "scaffolding/io/audio/wav.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "scaffolding/core/parallel.h"
#include "scaffolding/io/byte_reader.h"

namespace sf::io {

namespace {

constexpr const char* kSave = "save_wav";
enum Tag : uint16_t { kPCM = 1, kFloat = 3, kExtensible = 0xFFFE };
// Of an extensible format, behind its tag.
constexpr std::string_view kGuid("\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71", 14);
// Speakers of 1 to 8 channels: mono, stereo, 3.0, quad, 5.0, 5.1, 6.1, 7.1.
constexpr uint32_t kSpeakers[kMostAudioChannels] = {0x4, 0x3, 0x7, 0x33, 0x37, 0x3F, 0x70F, 0x63F};

int bytes_of(WavEncoding e) { return e == WavEncoding::PCM16 ? 2 : e == WavEncoding::PCM24 ? 3 : 4; }

// ---- writing

class Head {
 public:
  Head& text(std::string_view s) {
    bytes_ += s;
    return *this;
  }
  template <class T> Head& number(T v) {
    for (size_t i = 0; i < sizeof v; ++i) bytes_ += char(uint64_t(v) >> (8 * i));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string head_of(WavEncoding encoding, int64_t channels, int64_t frames, int64_t rate) {
  const int width = bytes_of(encoding);
  const uint64_t data = uint64_t(channels * frames * width);
  const uint16_t tag = encoding == WavEncoding::Float32 ? kFloat : kPCM;
  const bool extensible = channels > 2, counted = tag != kPCM || extensible;  // how many samples it has
  Head format;
  format.number(extensible ? uint16_t(kExtensible) : tag)
      .number(uint16_t(channels))
      .number(uint32_t(rate))
      .number(uint32_t(rate * channels * width))
      .number(uint16_t(channels * width))
      .number(uint16_t(8 * width));
  if (counted) format.number(uint16_t(extensible ? 22 : 0));
  if (extensible) format.number(uint16_t(8 * width)).number(kSpeakers[channels - 1]).number(tag).text(kGuid);
  Head chunks;
  chunks.text("WAVEfmt ").number(uint32_t(format.bytes().size())).text(format.bytes());
  if (counted) chunks.text("fact").number(uint32_t(4)).number(uint32_t(frames));
  chunks.text("data").number(uint32_t(data));
  const uint64_t all = chunks.bytes().size() + data + data % 2;
  SF_CHECK(all <= 0xFFFFFFFFu, kSave, ": a WAV file holds four gigabytes at most, got ", channels, " channels of ",
           frames, " samples");
  return Head().text("RIFF").number(uint32_t(all)).text(chunks.bytes()).bytes();
}

// x in [-1, 1] to a whole number of `bits`.
int32_t rounded(float x, int bits) {
  const float most = float(1 << (bits - 1));
  if (!(x == x)) return 0;
  return int32_t(std::clamp(std::nearbyint(double(x) * most), double(-most), double(most) - 1));
}

// ---- reading

struct Format {
  uint16_t tag = 0, channels = 0, block = 0, bits = 0;
  uint32_t rate = 0;
};

std::string tag_name(uint16_t tag) {
  switch (tag) {
    case 2:
    case 0x11: return "ADPCM";
    case 6: return "A-law";
    case 7: return "mu-law";
    case 0x55: return "MP3";
    default: return "format " + std::to_string(tag);
  }
}

Format read_format(ByteReader& from, uint64_t size) {
  SF_CHECK(size >= 16, from.name(), ": is damaged: its fmt chunk has ", size, " bytes, 16 are the least");
  Format f;
  f.tag = from.get<uint16_t>();
  f.channels = from.get<uint16_t>();
  f.rate = from.get<uint32_t>();
  from.skip(4);  // bytes a second, which follow from the rest
  f.block = from.get<uint16_t>();
  f.bits = from.get<uint16_t>();
  if (f.tag == kExtensible) {
    SF_CHECK(size >= 40, from.name(), ": is damaged: an extensible fmt chunk has ", size, " bytes, 40 are the least");
    from.skip(8);  // its size, bits that matter, speakers
    f.tag = from.get<uint16_t>();
    SF_CHECK_AS(NotSupported, from.text(14) == kGuid, from.name(), ": holds sound of a kind that is not known here");
  }
  SF_CHECK_AS(NotSupported, f.tag == kPCM || f.tag == kFloat, from.name(), ": holds ", tag_name(f.tag),
              "; PCM and floating sound can be read, so convert it first");
  SF_CHECK(f.channels >= 1 && f.channels <= kMostAudioChannels, from.name(), ": must have 1 to ", kMostAudioChannels,
           " channels, got ", f.channels);
  SF_CHECK(f.rate >= 1 && f.rate <= kMostSamplingRate, from.name(), ": must have 1 to ", kMostSamplingRate,
           " samples a second, got ", f.rate);
  const bool known =
      f.tag == kFloat ? f.bits == 32 || f.bits == 64 : f.bits == 8 || f.bits == 16 || f.bits == 24 || f.bits == 32;
  SF_CHECK_AS(NotSupported, known, from.name(), ": holds ", f.tag == kFloat ? "floating" : "PCM", " samples of ",
              f.bits, " bits");
  SF_CHECK(f.block == f.channels * f.bits / 8, from.name(), ": is damaged: ", f.channels, " channels of ", f.bits,
           " bits take ", f.channels * f.bits / 8, " bytes, and it says ", f.block);
  return f;
}

template <class T> T stored(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

float sample(const std::byte* p, const Format& f) {
  if (f.tag == kFloat) return f.bits == 32 ? stored<float>(p) : float(stored<double>(p));
  switch (f.bits) {
    case 8: return float(int(stored<uint8_t>(p)) - 128) / 128;
    case 16: return float(stored<int16_t>(p)) / 32768;
    case 24: {
      const uint32_t v = uint32_t(p[0]) << 8 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 24;
      return float(int32_t(v) >> 8) / 8388608;
    }
    default: return float(stored<int32_t>(p)) / 2147483648.f;
  }
}

Tensor samples_of(const std::byte* data, uint64_t bytes, const Format& f) {
  const int64_t frames = int64_t(bytes) / f.block, width = f.bits / 8, channels = f.channels;
  Tensor x = empty({channels, frames}, kFloat32, Device{});
  auto* to = x.data<float>();
  parallel_for(frames, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t c = 0; c < channels; ++c) to[c * frames + i] = sample(data + i * f.block + c * width, f);
  });
  return x;
}

}  // namespace

WavEncoding wav_encoding(const std::string& name) {
  if (name == "pcm16") return WavEncoding::PCM16;
  if (name == "pcm24") return WavEncoding::PCM24;
  SF_CHECK(name == "float32", kSave, ": encoding must be pcm16, pcm24 or float32, got '", name, "'");
  return WavEncoding::Float32;
}

bool is_wav(const Bytes& file) {
  const std::string_view head(file.chars(), size_t(std::min<uint64_t>(file.size, 12)));
  return head.size() == 12 && (head.starts_with("RIFF") || head.starts_with("RIFX") || head.starts_with("RF64")) &&
         head.ends_with("WAVE");
}

void save_wav(Sink& sink, const Tensor& audio, int64_t rate, WavEncoding encoding) {
  check_sampling_rate(kSave, rate);
  const Tensor x = audio_channels(kSave, audio);
  const int64_t channels = x.size(0), frames = x.size(1), width = bytes_of(encoding);
  const std::string head = head_of(encoding, channels, frames, rate);
  sink.write(head.data(), head.size());
  constexpr int64_t kTogether = 1 << 16;
  std::string part;
  const auto* from = x.data<float>();
  for (int64_t first = 0; first < frames; first += kTogether) {
    const int64_t n = std::min(kTogether, frames - first);
    part.resize(size_t(n * channels * width));
    char* to = part.data();
    for (int64_t i = first; i < first + n; ++i)
      for (int64_t c = 0; c < channels; ++c, to += width) {
        const float v = from[c * frames + i];
        if (encoding == WavEncoding::Float32) {
          std::memcpy(to, &v, 4);
        } else {
          const int32_t whole = rounded(v, int(8 * width));
          std::memcpy(to, &whole, size_t(width));
        }
      }
    sink.write(part.data(), part.size());
  }
  if (channels * frames * width % 2) sink.write("", 1);
}

void save_wav(const std::string& path, const Tensor& audio, int64_t rate, WavEncoding encoding) {
  ReplacingFile file(path);
  save_wav(file, audio, rate, encoding);
  file.commit();
}

Audio load_wav(const Bytes& file) {
  ByteReader from(file);
  SF_CHECK(is_wav(file), file.name, ": is no WAV file, by its first bytes");
  const std::string kind(from.text(4));
  SF_CHECK_AS(NotSupported, kind == "RIFF", file.name, ": is a ", kind,
              " file; WAV files that begin with RIFF can be read");
  from.skip(8);
  std::optional<Format> format;
  while (from.left() > 0) {
    const std::string chunk(from.text(4));
    const uint64_t size = from.get<uint32_t>(), begin = from.at();
    if (chunk == "fmt ") {
      SF_CHECK(!format, file.name, ": is damaged: it has two fmt chunks");
      from.need(size);
      format = read_format(from, size);
    } else if (chunk == "data") {
      SF_CHECK(format, file.name, ": is damaged: its data comes before its fmt chunk");
      from.need(size);
      SF_CHECK(size % format->block == 0 && size > 0, file.name, ": is damaged: ", size,
               " bytes of data are no whole samples of ", format->block, " bytes");
      return {samples_of(file.data + begin, size, *format), format->rate};
    }
    from.skip(begin + size - from.at());
    if (size % 2 && from.left() > 0) from.skip(1);
  }
  fail(file.name, ": is damaged: it has no data chunk");
}

Audio load_wav(const std::string& path) { return load_wav(Bytes::map(path)); }

}  // namespace sf::io
