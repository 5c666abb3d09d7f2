#include "scaffolding/io/audio/audio.h"

#include "scaffolding/io/audio/wav.h"
#include "scaffolding/io/video/frame_codecs.h"
#include "scaffolding/io/video/video_container.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf::io {

Tensor audio_channels(const char* who, const Tensor& audio) {
  check_defined(who, "audio", audio);
  SF_CHECK_AS(TypeError, audio.is_floating_point() || audio.dtype() == kInt16, who,
              ": audio must be floating in [-1, 1], or int16, got ", audio.dtype());
  const bool one = audio.ndim() == 1, two = audio.ndim() == 2;
  const bool first = two && audio.size(0) >= 1 && audio.size(0) <= kMostAudioChannels,
             last = two && audio.size(1) >= 1 && audio.size(1) <= kMostAudioChannels;
  SF_CHECK((one || first || last) && audio.numel() > 0, who, ": audio must be [channels, samples] of 1 to ",
           kMostAudioChannels, " channels, or [samples], got ", audio.shape());
  const Tensor channels = one ? audio.detach().unsqueeze(0) : first ? audio.detach() : audio.detach().transpose(0, 1);
  const Tensor x = channels.cpu();
  if (x.dtype() == kInt16) return contiguous(x.to(kFloat32)) * (1.0 / 32768);
  return contiguous(x.to(kFloat32));
}

void check_sampling_rate(const char* who, int64_t rate) {
  SF_CHECK(rate >= 1 && rate <= kMostSamplingRate, who, ": sampling_rate must be 1 to ", kMostSamplingRate, ", got ",
           rate);
}

Audio load_audio(const Bytes& file) {
  if (is_wav(file)) return load_wav(file);
  const VideoContainer container = video_container(file);
  SF_CHECK(container != VideoContainer::None, file.name, ": is no WAV, mp4, mov, mkv or webm file, by its first bytes");
  check_whole(file, container);
  std::string why;
  const VideoLibrary* library = video_library(&why);
  SF_CHECK_AS(NotSupported, library, file.name, ": ", why);
  return library->sound(file);
}

Audio load_audio(const std::string& path) { return load_audio(Bytes::map(path)); }

}  // namespace sf::io
