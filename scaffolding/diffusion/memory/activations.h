// Activations: what the calls of a pipeline's networks take beside their weights. Counted, not guessed: the networks
// are made again on Device::Meta from their configs, and a call of the pipeline runs through them up to its first step
// and the decoding, with shapes for tensors. It costs no memory, whatever the size of the models.
#pragma once
#include <map>

#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

inline constexpr int64_t kPlannedTile = 512;  // pixels on a side: SDXL's own tiles are as large as its pictures

// In bytes at the peak of one call of the network: its inputs, results and what lies between. Kernels' own workspaces
// are not in it.
struct Activations {
  // of each text encoder, and what is asked beside it once a call, by its component's name
  std::map<std::string, int64_t> text;
  int64_t batched = 0, sequential = 0;   // of the denoiser: guidance in one call and in two, with what is kept of the
                                         // text from step to step; equal where there is no guidance
  int64_t encode = 0, encode_tiled = 0;  // of the autoencoder, of a call with pictures to begin with
  // of the last two one picture at a time; tiles of kPlannedTile pixels at most. Of clips with their frames as bytes,
  // which is how calls return them but for output types of floating numbers
  int64_t decode = 0, decode_sliced = 0, decode_tiled = 0;  // 0 of a pipeline without one
  int64_t pixels = 0;  // from decoded values to pixels, beside the autoencoder; 0 of clips
};

struct CallShape {
  std::optional<int64_t> height, width;  // pixels; absent: what the denoiser was trained on
  std::optional<int64_t> frames;         // of clips; absent: likewise
  int64_t batch = 1;                     // pictures, or clips, at a time
};

// A call of the pipeline for pictures of that shape, with empty prompts, the first class and black pictures.
AnyOptions options_for_shape(const DiffusionPipeline& pipeline, const CallShape& shape);

// Networks by the names of their components, for those that calls reach through another language.
using NetworkModules = std::map<std::string, nn::Module*>;

// Of a call with these options, whose values do not matter but for sizes, on a device of that kind. The pipeline and
// its networks stay as they are, and nothing is drawn from anybody's generator. Tensors are of the networks' dtypes.
// NotSupported naming a network that is no C++ model, of which no second one can be made; errors of the call as it
// raises them.
Activations count_activations(const DiffusionPipeline& pipeline, const AnyOptions& options, Device device = {},
                              const NetworkModules& modules = {});

}  // namespace sf::diffusion
