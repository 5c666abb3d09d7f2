// WAV files (RIFF, IBM and Microsoft 1991; WAVEFORMATEXTENSIBLE 2001). Functions only; any thread.
#pragma once
#include "scaffolding/io/audio/audio.h"

namespace sf::io {

enum class WavEncoding : uint8_t { PCM16, PCM24, Float32 };
WavEncoding wav_encoding(const std::string& name);  // "pcm16", "pcm24", "float32"; ValueError for another

bool is_wav(const Bytes& file);

// Written beside and renamed. audio: as audio_channels() takes it, 1 to 8 channels; of integers values are clamped to
// [-1, 1] and rounded, NaN is silence. ValueError for what a file cannot hold: four gigabytes are the most.
void save_wav(const std::string& path, const Tensor& audio, int64_t sampling_rate,
              WavEncoding encoding = WavEncoding::PCM16);
void save_wav(Sink& sink, const Tensor& audio, int64_t sampling_rate, WavEncoding encoding = WavEncoding::PCM16);

// Integers of 8, 16, 24 and 32 bits and floats of 32 and 64, as float32. ValueError naming the file and the place where
// it is damaged, NotSupported for compressed sound.
Audio load_wav(const std::string& path);
Audio load_wav(const Bytes& file);

}  // namespace sf::io
