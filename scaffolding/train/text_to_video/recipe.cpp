#include "scaffolding/train/text_to_video/recipe.h"

#include <algorithm>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory.h"
#include "scaffolding/io/object_entries.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_cogvideox.h"
#include "scaffolding/models/text_encoders/t5.h"
#include "scaffolding/models/transformers/tora_transformer_3d.h"
#include "scaffolding/train/text_to_video/caption_drawer.h"

namespace sf::train {

using io::Object;

namespace {

constexpr int64_t kSmokeSamples = 32;
const char* const kPlain = models::CogVideoXTransformer3DModel::kName;
const char* const kSteered = models::ToraTransformer3DModel::kName;

// What a config.json says besides of what it is, in diffusers' or in transformers' words.
bool is_label(const std::string& name) {
  static const std::set<std::string> labels{"architectures", "model_type", "torch_dtype", "dtype",
                                            "transformers_version"};
  return name.starts_with("_") || labels.count(name) > 0;
}

// A network's config.
template <class Config> Config network(const std::string& who, const Object& dict) {
  Config config;
  const io::ConfigRest rest = io::read_fields(who.c_str(), config.fields(), dict);
  auto& unknown = rest.unknown.items();
  for (size_t i = 0; i < unknown.size(); i += 2)
    SF_CHECK(is_label(unknown[i].text()), who, ": has no field '", unknown[i].text(), "'");
  return config;
}

std::string class_of(const Object& config, const char* otherwise) {
  auto* name = config.find("_class_name");
  return name && name->is(Object::String) ? name->text() : otherwise;
}

void check_configs(const std::string& path, const VideoRecipe& r) {
  const std::string named = class_of(r.transformer, kPlain);
  SF_CHECK(named == kPlain || named == kSteered, path, ": transformer: _class_name must be ", kPlain, " or ", kSteered,
           ", got '", named, "'");
  const auto transformer = network<models::ToraTransformer3DConfig>(path + ": transformer", r.transformer);
  const auto vae = network<models::AutoencoderKLCogVideoXConfig>(path + ": vae", r.vae);
  network<models::T5Config>(path + ": text_encoder", r.text_encoder);
  SF_CHECK(transformer.patch_size_t.value_or(1) == 1, path,
           ": transformer: patch_size_t must be absent, patches of several frames are not trained");
  SF_CHECK(!transformer.ofs_embed_dim && !transformer.use_learned_positional_embeddings, path,
           ": transformer: a recipe trains text to video; ofs_embed_dim and use_learned_positional_embeddings are of "
           "image to video");
  const int64_t levels = int64_t(vae.block_out_channels.size());
  SF_CHECK(levels >= 1 && levels < 16, path, ": vae: block_out_channels must have 1 to 15 levels, got ", levels);
  const int64_t side = (int64_t(1) << (levels - 1)) * std::max<int64_t>(1, transformer.patch_size),
                ratio = vae.temporal_compression_ratio;
  const ClipData& d = r.data;
  SF_CHECK(d.height > 0 && d.width > 0 && d.height % side == 0 && d.width % side == 0, path,
           ": data: height and width must be multiples of ", side,
           ", pixels of a latent times the transformer's patch_size, got ", d.height, " x ", d.width);
  SF_CHECK(ratio > 0, path, ": vae: temporal_compression_ratio must be above 0, got ", ratio);
  const auto check_frames = [&](const char* part, int64_t frames) {
    SF_CHECK(frames > 0, path, ": ", part, ": num_frames must be above 0, got ", frames);
    SF_CHECK((frames - 1) % ratio == 0, path, ": ", part, ": num_frames must be ", ratio, " k + 1, got ", frames);
  };
  check_frames("data", d.num_frames);
  const int64_t trained = r.autoencoder.num_frames.value_or(d.num_frames);
  check_frames("autoencoder_training", trained);
  SF_CHECK(trained <= d.num_frames, path, ": autoencoder_training: num_frames must be at most data's ", d.num_frames,
           ", got ", trained);
  const int64_t latent = int64_t(1) << (levels - 1), crop = r.autoencoder.crop.value_or(latent);
  SF_CHECK(crop > 0 && crop % latent == 0 && crop <= std::min(d.height, d.width), path,
           ": autoencoder_training: crop must be a multiple of ", latent, ", pixels of a latent, and at most ",
           std::min(d.height, d.width), ", got ", crop);
}

void check_latent_frames(const std::string& who, const VideoRecipe& r) {
  const ClipDenoiserRecipe& o = r.denoiser;
  SF_CHECK(o.whole_steps >= 0 && o.whole_steps <= o.max_steps, who, ": whole_steps must be 0 to max_steps, ",
           o.max_steps, ", got ", o.whole_steps);
  if (!o.latent_frames) return;
  models::AutoencoderKLCogVideoXConfig vae;
  models::ToraTransformer3DConfig transformer;
  io::read_fields("vae", vae.fields(), r.vae);
  io::read_fields("transformer", transformer.fields(), r.transformer);
  const int64_t frames = *o.latent_frames, all = (r.data.num_frames - 1) / vae.temporal_compression_ratio + 1;
  SF_CHECK(frames >= 1 && frames <= all, who, ": latent_frames must be 1 to a clip's ", all, ", got ", frames);
  SF_CHECK(transformer.use_rotary_positional_embeddings && !transformer.patch_size_t, who,
           ": latent_frames needs a transformer with use_rotary_positional_embeddings and without patch_size_t, which "
           "can tell a part of a clip by its positions");
}

void check_numbers(const std::string& path, const VideoRecipe& r) {
  r.autoencoder.check(path + ": autoencoder_training");
  if (r.text_encoder_training.max_steps != 0) r.text_encoder_training.check(path + ": text_encoder_training");
  const std::string denoiser = path + ": denoiser_training";
  const ClipDenoiserRecipe& o = r.denoiser;
  o.check(denoiser);
  const auto is_share = [](double x) { return x >= 0 && x <= 1; };
  SF_CHECK(is_share(r.autoencoder.flow_share), path, ": autoencoder_training: flow_share must be 0 to 1, got ",
           r.autoencoder.flow_share);
  SF_CHECK(r.autoencoder.square_steps >= 0, path, ": autoencoder_training: square_steps must not be negative, got ",
           r.autoencoder.square_steps);
  SF_CHECK(is_share(o.trajectory_dropout), denoiser, ": trajectory_dropout must be 0 to 1, got ", o.trajectory_dropout);
  SF_CHECK(o.clips >= 1 && o.clips <= 100'000, denoiser, ": clips must be 1 to 100000, got ", o.clips);
  check_latent_frames(denoiser, r);
  SF_CHECK(o.trainable == "all" || o.trainable == "tora", denoiser, ": trainable must be 'all' or 'tora', got '",
           o.trainable, "'");
  SF_CHECK(o.trainable == "all" || r.steered(), denoiser,
           ": trainable 'tora' needs a transformer whose _class_name is ", kSteered);
  SF_CHECK(o.sample_trajectories.empty() || r.steered(), denoiser,
           ": sample_trajectories need a transformer whose _class_name is ", kSteered);
  SF_CHECK(o.sample_trajectories.empty() || o.sample_trajectories.size() == o.sample_prompts.size(), denoiser,
           ": sample_trajectories must be one for each of the ", o.sample_prompts.size(), " sample_prompts, got ",
           o.sample_trajectories.size());
  for (auto& text : o.sample_trajectories)
    diffusion::check_trajectories(diffusion::parse_trajectories(text, denoiser + ": sample_trajectories"),
                                  {r.data.width, r.data.height});
  SF_CHECK(r.max_tokens > 1 && r.max_tokens <= 4096, path, ": tokenizer: max_tokens must be 2 to 4096, got ",
           r.max_tokens);
  SF_CHECK(r.text_encoder_training.max_steps == 0 || !r.data.has_icons || r.max_tokens >= CaptionDrawer::kTokens, path,
           ": tokenizer: max_tokens must be ", CaptionDrawer::kTokens, " or more, got ", r.max_tokens,
           ": a text encoder learns to draw icons by a patch of each token; or leave text_encoder_training out");
}

void read_data(const std::string& path, const Object& dict, ClipData& d) {
  Object icons;
  read_recipe_part(path + ": data",
                   {{"path", &d.path},
                    {"num_frames", &d.num_frames},
                    {"height", &d.height},
                    {"width", &d.width},
                    {"frame_stride", &d.frame_stride},
                    {"icons", &icons}},
                   dict);
  SF_CHECK(!d.path.empty(), path, ": data: must have a path: a folder of clips, or the tar of icons");
  d.path = beside_recipe(path, d.path);
  d.has_icons = dict.find("icons") != nullptr;
  if (!d.has_icons) return;
  check_recipe_object(path + ": data", "icons", icons);
  read_recipe_part(path + ": data: icons",
                   {{"splits", &d.icons.splits},
                    {"left_out_groups", &d.icons.left_out_groups},
                    {"styles", &d.icons.styles},
                    {"background_probability", &d.icons.background_probability},
                    {"keyword_probability", &d.icons.keyword_probability},
                    {"style_dropout", &d.icons.style_dropout},
                    {"smallest_icon", &d.moving.smallest_icon},
                    {"largest_icon", &d.moving.largest_icon},
                    {"margin", &d.moving.margin},
                    {"gradient_probability", &d.moving.gradient_probability}},
                   icons);
  SF_CHECK(d.height == d.width, path, ": data: clips of icons are squares, got height ", d.height, " and width ",
           d.width);
  SF_CHECK(d.frame_stride == 1, path, ": data: frame_stride is of a folder of clips, got ", d.frame_stride);
  d.moving.num_frames = d.num_frames;
  d.moving.size = d.height;
}

Object list(const std::vector<Object>& items) { return Object::container(Object::List, items); }

}  // namespace

io::Fields ClipAutoencoderRecipe::fields() {
  io::Fields all = AutoencoderRecipe::fields();
  all.insert(
      all.end(),
      {{"flow_share", &flow_share}, {"num_frames", &num_frames}, {"crop", &crop}, {"square_steps", &square_steps}});
  return all;
}

io::Fields ClipDenoiserRecipe::fields() {
  io::Fields all = DenoiserRecipe::fields();
  all.insert(all.end(), {{"trainable", &trainable},
                         {"gradient_checkpointing", &gradient_checkpointing},
                         {"clips", &clips},
                         {"latent_frames", &latent_frames},
                         {"whole_steps", &whole_steps},
                         {"trajectory_dropout", &trajectory_dropout},
                         {"sample_trajectories", &sample_trajectories}});
  return all;
}

bool VideoRecipe::recognises(const std::string& path) {
  return io::read_config_file(path).find("transformer") != nullptr;
}

bool VideoRecipe::steered() const { return class_of(transformer, kPlain) == kSteered; }

VideoRecipe VideoRecipe::read(const std::string& path) {
  const Object file = io::read_config_file(path);
  VideoRecipe r;
  r.denoiser.snr_gamma.reset();
  Object data, tokenizer, autoencoder, denoiser;
  Object text_encoder_training = Object::container(Object::Dict, {"max_steps", int64_t(0)});
  read_recipe_objects(path,
                      {{"data", &data},
                       {"tokenizer", &tokenizer},
                       {"vae", &r.vae},
                       {"text_encoder", &r.text_encoder},
                       {"transformer", &r.transformer},
                       {"scheduler", &r.scheduler},
                       {"autoencoder_training", &autoencoder},
                       {"text_encoder_training", &text_encoder_training},
                       {"denoiser_training", &denoiser}},
                      {{"seed", &r.seed}}, file);
  read_data(path, data, r.data);
  read_recipe_part(path + ": tokenizer", {{"vocab_size", &r.vocab_size}, {"max_tokens", &r.max_tokens}}, tokenizer);
  read_recipe_part(path + ": autoencoder_training", r.autoencoder.fields(), autoencoder);
  read_recipe_part(path + ": text_encoder_training", r.text_encoder_training.fields(), text_encoder_training);
  read_recipe_part(path + ": denoiser_training", r.denoiser.fields(), denoiser);
  check_configs(path, r);
  check_numbers(path, r);
  recipe_scheduler(r.scheduler);
  return r;
}

void VideoRecipe::make_smoke() {
  io::set_entry(vae, "block_out_channels", [&] {
    const auto* levels = vae.find("block_out_channels");
    return list(std::vector<Object>(levels ? levels->items().size() : 4, int64_t(8)));
  }());
  io::set_entry(vae, "norm_num_groups", int64_t(4));
  io::set_entry(vae, "layers_per_block", int64_t(1));
  for (auto [name, value] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"d_model", 32}, {"d_kv", 8}, {"d_ff", 64}, {"num_layers", 1}, {"num_heads", 2}})
    io::set_entry(text_encoder, name, value);
  for (auto [name, value] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"num_attention_heads", 2}, {"attention_head_dim", 16}, {"time_embed_dim", 16}, {"num_layers", 2}})
    io::set_entry(transformer, name, value);
  if (steered()) io::set_entry(transformer, "flow_channels", int64_t(8));
  autoencoder.make_smoke();
  autoencoder.square_steps = std::min<int64_t>(autoencoder.square_steps, 3);
  denoiser.make_smoke();
  if (text_encoder_training.max_steps != 0) text_encoder_training.make_smoke();
  denoiser.sample_steps = 3;
  denoiser.clips = 1;
  denoiser.whole_steps = std::min<int64_t>(denoiser.whole_steps, 3);
  data.most = kSmokeSamples;
}

}  // namespace sf::train
