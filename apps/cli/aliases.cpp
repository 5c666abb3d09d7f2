#include "apps/cli/aliases.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <random>

#include "apps/cli/files.h"
#include "apps/cli/samplers.h"
#include "apps/cli/suggestions.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"

namespace sf::cli {

namespace {

struct Alias {
  std::string_view theirs, ours;
};

constexpr Alias kCommands[] = {
    {"generate", "txt2img"},      {"sample", "txt2img"},  {"img-gen", "txt2img"}, {"t2i", "txt2img"},
    {"i2i", "img2img"},           {"vid-gen", "txt2vid"}, {"t2v", "txt2vid"},     {"i2v", "img2vid"},
    {"finetune", "train"},        {"webui", "serve"},     {"info", "inspect"},    {"list", "models"},
    {"dreambooth", "train-lora"},
};

constexpr Alias kLong[] = {
    {"cfg-scale", "guidance"},
    {"cfg", "guidance"},
    {"guidance-scale", "guidance"},
    {"scale", "guidance"},
    {"num-inference-steps", "steps"},
    {"sampling-steps", "steps"},
    {"sample-steps", "steps"},
    {"ddim-steps", "steps"},
    {"num-steps", "steps"},
    {"sampling-method", "sampler"},
    {"sample-method", "sampler"},
    {"sampler-name", "sampler"},
    {"neg-prompt", "negative-prompt"},
    {"negative", "negative-prompt"},
    {"positive-prompt", "prompt"},
    {"denoising-strength", "strength"},
    {"denoise", "strength"},
    {"init-img", "image"},
    {"init-image", "image"},
    {"init-images", "image"},
    {"input-image", "image"},
    {"init-mask", "mask"},
    {"mask-image", "mask"},
    {"lora-model-dir", "lora-dir"},
    {"ckpt", "model"},
    {"checkpoint", "model"},
    {"model-path", "model"},
    {"taesd", "vae"},
    {"tae", "vae"},
    {"precision", "dtype"},
    {"torch-dtype", "dtype"},
    {"video-frames", "num-frames"},
    {"frames", "num-frames"},
    {"control-net", "controlnet"},
    {"control-scale", "controlnet-conditioning-scale"},
    {"control-strength", "controlnet-conditioning-scale"},
    {"control-start", "control-guidance-start"},
    {"control-end", "control-guidance-end"},
    {"random-seed", "seed"},
    {"noise-seed", "seed"},
    {"iterations", "count"},
    {"num-images", "count"},
    {"num-samples", "count"},
    {"num-images-per-prompt", "count"},
    {"num-videos-per-prompt", "count"},
    {"overwrite", "force"},
    // of training scripts: diffusers', kohya's
    {"pretrained-model-name-or-path", "model"},
    {"train-data-dir", "data"},
    {"instance-data-dir", "data"},
    {"instance-prompt", "caption"},
    {"output-dir", "output"},
    {"max-train-steps", "steps"},
    {"train-batch-size", "batch"},
    {"gradient-accumulation-steps", "accumulate"},
    {"learning-rate", "lr"},
    {"lr-scheduler", "schedule"},
    {"lr-warmup-steps", "warmup"},
    {"network-dim", "rank"},
    {"network-alpha", "alpha"},
    {"lora-alpha", "alpha"},
    {"lora-dropout", "dropout"},
    {"min-snr-gamma", "snr-gamma"},
    {"random-flip", "flip"},
    {"flip-aug", "flip"},
    {"checkpointing-steps", "save-every"},
    {"validation-prompt", "sample"},
};
constexpr Alias kShort[] = {{"W", "width"}, {"H", "height"}, {"C", "guidance"}, {"A", "sampler"},
                            {"S", "seed"},  {"p", "prompt"}, {"I", "image"}};

// Of other programs, and what does the same here.
constexpr Alias kInstead[] = {
    {"threads", "SF_NUM_THREADS in the environment says how many threads compute"},
    {"medvram", "--profile auto fits a model into the memory there is"},
    {"lowvram", "--profile auto fits a model into the memory there is"},
    {"offload-to-cpu", "--profile auto fits a model into the memory there is"},
    {"mode", "modes are commands here: `scaffolding --help` lists them"},
    {"embd-dir", "--embedding FILE takes a concept, which prompts name as the file is called"},
    {"embeddings-dir", "--embedding FILE takes a concept, which prompts name as the file is called"},
    {"clip-stop-at-last-layers", "--clip-skip counts the layers that are left out: one less"},
};

bool has(const CLI::App& command, const std::string& name) { return command.get_option_no_throw(name) != nullptr; }

template <size_t n> std::string renamed(const CLI::App& command, const Alias (&table)[n], std::string_view name) {
  for (auto& alias : table)
    if (alias.theirs == name && has(command, "--" + std::string(alias.ours))) return std::string(alias.ours);
  return "";
}

std::optional<int64_t> integer(const std::string& text) {
  int64_t n = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() && n > 0 && n <= 1000000 ? std::optional(n)
                                                                                           : std::nullopt;
}

std::vector<std::string> long_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* o : command.get_options())
    for (auto& name : o->get_lnames()) names.push_back("--" + name);
  return names;
}

// One command's arguments, behind its name.
class Reader {
 public:
  Reader(CLI::App& program, const CLI::App& command, const std::vector<std::string>& arguments, size_t begin)
      : program_(program), command_(command), in_(arguments), at_(begin) {}

  std::vector<std::string> read() {
    while (at_ < in_.size()) {
      const std::string& word = in_[at_];
      if (word == "--") break;
      if (word.size() < 2 || word[0] != '-') out_.push_back(word), ++at_;
      else if (word[1] == '-' || is_long(word.substr(1))) long_option();
      else short_options();
    }
    refuse_unknown();
    count_pictures();
    out_.insert(out_.end(), last_.begin(), last_.end());
    out_.insert(out_.end(), in_.begin() + long(at_), in_.end());
    return std::move(out_);
  }

 private:
  // "-cfg 7", as some write it; shorter ones are options with their values behind them
  bool is_long(const std::string& word) const {
    const std::string name = word.substr(0, word.find('='));
    return name.size() > 2 && (has(command_, "--" + name) || !our_name(command_, name).empty());
  }

  // An option that is here, and so many values as it must have, which may begin with hyphens.
  void take(const CLI::Option& option, const std::string& word, bool first_is_there) {
    out_.push_back(word);
    ++at_;
    for (int i = first_is_there; i < option.get_items_expected_min() && at_ < in_.size(); ++i)
      out_.push_back(in_[at_++]);
    counted_ |= option.check_lname("count");
    if (std::string& last = out_.back(); option.check_lname("seed") && (last == "-1" || last == "--seed=-1"))
      last.replace(last.size() - 2, 2, std::to_string(std::random_device{}()));  // there it stands for any
  }

  // The value of an option under another name: joined to it, or the next word.
  std::optional<std::string> value(const std::optional<std::string>& joined) {
    ++at_;
    if (joined) return joined;
    if (at_ == in_.size()) return std::nullopt;
    return in_[at_++];
  }

  std::string needed(const std::string& name, const std::optional<std::string>& joined) {
    const auto v = value(joined);
    SF_CHECK(v && !v->empty(), "--", name, ": must not be empty");
    return *v;
  }

  void put(const std::string& ours, const std::optional<std::string>& joined) {
    const CLI::Option& option = *command_.get_option("--" + ours);
    if (option.get_items_expected_max() == 0) return take(option, "--" + ours, true);
    out_.push_back("--" + ours);
    if (auto v = value(joined)) out_.push_back(ours == "sampler" && !v->empty() ? sampler_named(*v) : *v);
    counted_ |= ours == "count";
  }

  void long_option() {
    const std::string word = in_[at_].substr(in_[at_].starts_with("--") ? 2 : 1);
    const size_t equals = word.find('=');
    const std::string given = word.substr(0, equals), name = as_option_name(given);
    const std::optional<std::string> joined =
        equals == word.npos ? std::nullopt : std::optional(word.substr(equals + 1));
    const bool ours = has(command_, "--" + given);
    if (ours && given != "sampler") {
      const std::string hyphens = in_[at_].starts_with("--") ? "" : "-";
      return take(*command_.get_option("--" + given), hyphens + in_[at_], joined.has_value());
    }
    const bool pictures = has(command_, "--prompt") && has(command_, "--count");
    if (pictures && (name == "batch-size" || name == "n-samples")) batch_size_ = needed(name, joined);
    else if (pictures && (name == "batch-count" || name == "n-iter")) batches_ = needed(name, joined);
    else if (name == "batch-size" && has(command_, "--batch")) put("batch", joined);
    else if (name == "type" && has(command_, "--quantize")) weight_type(needed(name, joined));
    else if (name == "scheduler" && has(command_, "--sampler")) schedule(needed(name, joined));
    else if ((name == "outdir" || name == "output-dir") && has(command_, "--output")) folder(needed(name, joined));
    else if (auto our = our_name(command_, given); !our.empty()) put(our, joined);
    else unknown();
  }

  // "-q", "-qb4", "-b 4", "-b4"
  void short_options() {
    const std::string& word = in_[at_];
    for (size_t i = 1; i < word.size(); ++i) {
      const CLI::Option* option = command_.get_option_no_throw(std::string("-") + word[i]);
      const bool flag = option && option->get_items_expected_max() == 0;
      if (flag && i + 1 < word.size()) continue;
      if (option) return take(*option, word, i + 1 < word.size());
      const std::string ours = renamed(command_, kShort, std::string_view(word).substr(i, 1));
      if (ours.empty()) return unknown();
      if (i > 1) out_.push_back(word.substr(0, i));
      const size_t begin = i + 1 + (i + 1 < word.size() && word[i + 1] == '=');
      return put(ours, begin < word.size() ? std::optional(word.substr(begin)) : std::nullopt);
    }
  }

  void schedule(const std::string& text) {
    const NamedSchedule named = schedule_named(text);
    if (!named.sampler.empty()) last_.insert(last_.end(), {"--sampler", named.sampler});
    // at the end, since a list of values would take a prompt behind it too
    for (auto& option : named.options) last_.push_back("--scheduler-option=" + option);
  }

  // stable-diffusion.cpp calls dtypes and blocks so.
  void weight_type(const std::string& text) {
    out_.insert(out_.end(), {dtype_named(text) ? "--dtype" : "--quantize", text});
  }

  // A folder of pictures with the names that they have anyway.
  void folder(const std::string& text) {
    const std::string usual = command_.get_option("--output")->get_default_str();
    const bool file = std::filesystem::path(usual).has_extension();
    out_.insert(out_.end(), {"--output", file ? (std::filesystem::path(text) / usual).string() : text});
  }

  // There, a batch size makes so many pictures, and a batch count so many times as many.
  void count_pictures() {
    if (batch_size_) out_.insert(out_.end(), {"--batch", *batch_size_});
    const auto size = integer(batch_size_.value_or("1")), batches = integer(batches_.value_or("1"));
    if (counted_ || (!batch_size_ && !batches_) || !size) return;  // what is no number is refused by its option
    out_.insert(out_.end(), {"--count", batches ? std::to_string(*size * *batches) : *batches_});
  }

  void unknown() {
    unknown_.push_back(in_[at_].substr(0, in_[at_].starts_with("--") ? in_[at_].find('=') : std::string::npos));
    ++at_;
  }

  std::string hint(const std::string& word) const {
    const std::string name = as_option_name(std::string_view(word).substr(word.starts_with("--") ? 2 : 1));
    if (word.find(' ') != word.npos) return "; a prompt that begins with '-' stands behind --prompt=";
    for (auto& instead : kInstead)
      if (instead.theirs == name) return "; " + std::string(instead.ours);
    std::vector<std::string> others;
    for (const CLI::App* other : program_.get_subcommands({})) {
      const bool there = name.size() == 1 ? has(*other, word) : !our_name(*other, name).empty();
      if (there) others.push_back(other->get_name());
    }
    if (others.empty()) return name.size() == 1 ? "" : did_you_mean(word, long_names(command_));
    std::string list;
    for (size_t i = 0; i < others.size(); ++i)
      list += (i == 0 ? "" : i + 1 == others.size() ? " and " : ", ") + others[i];
    return "; " + list + (others.size() == 1 ? " has it" : " have it");
  }

  void refuse_unknown() const {
    if (unknown_.empty()) return;
    const std::string& name = command_.get_name();
    if (unknown_.size() == 1) {
      const std::string why = hint(unknown_[0]);
      fail(name, ": there is no option '", printable(unknown_[0]), "'", why, why.ends_with('?') ? " " : "; ",
           "`scaffolding ", name, " --help` lists them");
    }
    std::string all;
    for (auto& word : unknown_) {
      const std::string why = hint(word);
      all += (all.empty() ? "'" : ", '") + printable(word) + "'" + (why.empty() ? "" : " (" + why.substr(2) + ")");
    }
    fail(name, ": there are no options ", all, "; `scaffolding ", name, " --help` lists them");
  }

  CLI::App& program_;
  const CLI::App& command_;
  const std::vector<std::string>& in_;
  size_t at_;
  std::vector<std::string> out_, last_, unknown_;
  std::optional<std::string> batch_size_, batches_;
  bool counted_ = false;
};

}  // namespace

std::string our_name(const CLI::App& command, const std::string& name) {
  const std::string folded = as_option_name(name);
  if (has(command, "--" + folded)) return folded;
  return renamed(command, kLong, folded);
}

std::string our_command(const std::string& name) {
  const std::string folded = as_option_name(name);
  for (auto& alias : kCommands)
    if (alias.theirs == folded) return std::string(alias.ours);
  return name;
}

std::vector<std::string> in_our_words(CLI::App& program, const std::vector<std::string>& arguments) {
  const auto first = std::find_if(arguments.begin(), arguments.end(), [](auto& a) { return !a.starts_with('-'); });
  if (first == arguments.end()) return arguments;
  const auto commands = program.get_subcommands({});
  const std::string name = our_command(*first);
  const auto command = std::find_if(commands.begin(), commands.end(), [&](auto* c) { return c->get_name() == name; });
  if (command == commands.end() || (*command)->get_prefix_command()) return arguments;  // or another program's words
  std::vector<std::string> out(arguments.begin(), first);
  out.push_back(name);
  const auto rest = Reader(program, **command, arguments, out.size()).read();
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace sf::cli
