// VideoRecipe: everything that decides a text-to-video model: the clips, the configs of its parts, and how long and
// with what each stage is trained. Read from JSON, as examples/moving_icons.json is.
#pragma once
#include "scaffolding/data/moving_icons.h"
#include "scaffolding/train/stage_recipe.h"

namespace sf::train {

struct ClipAutoencoderRecipe : AutoencoderRecipe {
  double flow_share = 0.25;           // of the clips that are the colours of their flow, where they have trajectories
  std::optional<int64_t> num_frames;  // so many of a clip, from anywhere in it; absent: all
  std::optional<int64_t> crop;  // a square of so many pixels on a side: about what moves, or anywhere; absent: all
  int64_t square_steps = 0;     // the first so many steps are trained by mean squares, which show something soonest
  io::Fields fields();
};

struct ClipDenoiserRecipe : DenoiserRecipe {
  std::string trainable = "all";  // or "tora": the extractor and the fusers alone
  bool gradient_checkpointing = false;
  int64_t clips = 1;  // latents cached of each sample of the data, of other random numbers
  // So many latents in succession, from anywhere in its clips, of each batch, until the last whole_steps, which see
  // whole clips; absent: they all do. Parts show in a fraction of the time what things look like.
  std::optional<int64_t> latent_frames;
  int64_t whole_steps = 0;
  double trajectory_dropout = 0.1;               // the share of a batch, rounded, that nothing steers
  std::vector<std::string> sample_trajectories;  // one for each prompt, or none: "10,54 32,20; 5,5 9,60"
  io::Fields fields();
};

struct ClipData {
  std::string path;                                  // of icons, a tar; else a folder of clips
  int64_t num_frames = 17, height = 64, width = 64;  // a clip's, in pixels
  int64_t frame_stride = 1;                          // of a folder: every so many frames of a file
  bool has_icons = false;                            // clips are made of icons that move
  std::optional<int64_t> most;                       // samples that are used of more; no field of the file
  data::IconOptions icons;
  data::MovingIconOptions moving;
};

struct VideoRecipe {
  ClipData data;
  int64_t seed = 0, vocab_size = 4096, max_tokens = 32;
  io::Object vae, text_encoder, transformer, scheduler;  // configs, as their config.json
  ClipAutoencoderRecipe autoencoder;
  StageRecipe text_encoder_training;  // max_steps 0: none, it learns with the denoiser alone
  ClipDenoiserRecipe denoiser;

  // Whether the file is a recipe of this kind: it has a transformer. ValueError for what is no JSON object.
  static bool recognises(const std::string& path);
  // TypeError and ValueError naming the file and the field. Fields that the file does not name keep their defaults;
  // unknown ones are refused, in configs too.
  static VideoRecipe read(const std::string& path);
  bool steered() const;  // its transformer is Tora's
  void make_smoke();     // the whole chain in a minute: tiny models, few steps. Its clips are noise.
};

}  // namespace sf::train
