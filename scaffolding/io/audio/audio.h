// Sound: samples of some channels, and how many there are in a second.
#pragma once
#include <string>

#include "scaffolding/core/tensor.h"
#include "scaffolding/io/file.h"

namespace sf::io {

struct Audio {
  Tensor samples;             // [channels, n], float32, about -1 to 1
  int64_t sampling_rate = 0;  // of a channel, in a second
};

constexpr int64_t kMostAudioChannels = 8, kMostSamplingRate = 768000;

// [channels, n], contiguous float32 on the CPU, of audio[channels, n], [n, channels] (where only the last dimension is
// 1 to 8) or [n], on any device, floating in [-1, 1] or int16. ValueError naming `who` for others, or without samples.
Tensor audio_channels(const char* who, const Tensor& audio);
void check_sampling_rate(const char* who, int64_t sampling_rate);  // ValueError

// A WAV file, or the sound of an mp4, mov, mkv or webm file, through libav: told by their content. Errors as load_wav's
// and VideoReader's.
Audio load_audio(const std::string& path);
Audio load_audio(const Bytes& file);

}  // namespace sf::io
