#include "apps/cli/samplers.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "apps/cli/suggestions.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/object_entries.h"

namespace sf::cli {

using io::Object;

namespace {

struct Sampler {
  const char* name;
  const char* class_name;
  bool takes_schedules;  // use_karras_sigmas and its like
  std::vector<std::pair<const char*, Object>> fields;
  std::vector<std::string_view> elsewhere;  // other names of it, as folded() leaves them
};

const std::vector<Sampler>& samplers() {
  static const std::vector<Sampler> all{
      {"ddim", "DDIMScheduler", false, {}, {}},
      {"ddpm", "DDPMScheduler", false, {}, {}},
      {"euler", "EulerDiscreteScheduler", true, {}, {"eulerdiscrete"}},
      {"euler-a", "EulerAncestralDiscreteScheduler", false, {}, {"eulerancestral", "eulerancestraldiscrete"}},
      {"heun", "HeunDiscreteScheduler", true, {}, {"heundiscrete"}},
      {"dpm++2m", "DPMSolverMultistepScheduler", true, {}, {"dpmsolvermultistep", "dpmsolverpp", "multistepdpmsolver"}},
      {"dpm++2m-sde", "DPMSolverMultistepScheduler", true, {{"algorithm_type", "sde-dpmsolver++"}}, {}},
      {"dpm++2m-sde-heun",
       "DPMSolverMultistepScheduler",
       true,
       {{"algorithm_type", "sde-dpmsolver++"}, {"solver_type", "heun"}},
       {}},
      {"dpm++3m", "DPMSolverMultistepScheduler", true, {{"solver_order", int64_t(3)}}, {}},
      {"dpm++3m-sde",
       "DPMSolverMultistepScheduler",
       true,
       {{"algorithm_type", "sde-dpmsolver++"}, {"solver_order", int64_t(3)}},
       {}},
      {"unipc", "UniPCMultistepScheduler", true, {}, {"unipcbh2", "unipcmultistep"}},
      {"pndm", "PNDMScheduler", false, {{"skip_prk_steps", true}}, {"plms"}},
      {"lcm", "LCMScheduler", false, {}, {}},
      {"lms", "LMSDiscreteScheduler", true, {}, {"lmsdiscrete"}},
      {"dpm2", "KDPM2DiscreteScheduler", true, {}, {"kdpm2discrete"}},
      {"dpm2-a", "KDPM2AncestralDiscreteScheduler", true, {}, {"dpm2ancestral", "kdpm2ancestraldiscrete"}},
      {"dpm++2s", "DPMSolverSinglestepScheduler", true, {}, {"dpmsolversinglestep"}},
      {"deis", "DEISMultistepScheduler", true, {}, {"deismultistep"}},
      {"tcd", "TCDScheduler", false, {}, {}},
  };
  return all;
}

struct Schedule {
  std::string_view name, field;
  std::vector<std::string_view> elsewhere;
};
const Schedule kSchedules[] = {{"karras", "use_karras_sigmas", {"ka", "k"}},
                               {"exponential", "use_exponential_sigmas", {"exp"}},
                               {"beta", "use_beta_sigmas", {}}};

// Samplers that other programs have and this one does not, folded, and the nearest that is here.
constexpr std::pair<std::string_view, const char*> kNearest[] = {
    {"dpmpp2sa", "euler-a"},     {"dpmpp2sancestral", "euler-a"},
    {"dpmppsde", "dpm++2m-sde"}, {"dpmsolversde", "dpm++2m-sde"},
    {"dpmfast", "dpm++2m"},      {"dpmadaptive", "dpm++2m"},
    {"dpmad", "dpm++2m"},        {"dpmpp2mv2", "dpm++2m"},
    {"restart", "heun"},         {"heunpp2", "heun"},
    {"ipndm", "pndm"},           {"ipndmv", "pndm"},
    {"ddimtrailing", "ddim"},    {"ddimcfgpp", "ddim"},
    {"eulercfgpp", "euler"},     {"eulerancestralcfgpp", "euler-a"},
    {"resmultistep", "dpm++2m"}, {"res2s", "heun"},
    {"ersde", "dpm++2m-sde"},
};

// "DPM++ 2M Karras", "dpmpp_2m_karras": "dpmpp2mkarras".
std::string folded(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = char(c + 32);
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out += c;
    else if (c == '+') out += 'p';
  }
  for (std::string_view end : {"scheduler", "gpu"})
    if (out.size() > end.size() && out.ends_with(end)) out.resize(out.size() - end.size());
  return out;
}

struct Named {
  const Sampler* sampler;
  const Schedule* schedule = nullptr;
  std::string text() const { return sampler->name + (schedule ? "-" + std::string(schedule->name) : ""); }
};

const Sampler* sampler_of(std::string_view key) {
  for (auto& s : samplers())
    if (folded(s.name) == key || std::find(s.elsewhere.begin(), s.elsewhere.end(), key) != s.elsewhere.end()) return &s;
  return nullptr;
}

// Each way to take a schedule off the end: "dpmpp2mk" is dpmpp2m, spread as Karras says.
template <class F> void each_reading(std::string_view key, const F& f) {
  f(key, nullptr);
  for (auto& schedule : kSchedules) {
    const auto without = [&](std::string_view end) {
      if (key.size() > end.size() && key.ends_with(end)) f(key.substr(0, key.size() - end.size()), &schedule);
    };
    without(schedule.name);
    for (auto end : schedule.elsewhere) without(end);
  }
}

// k-diffusion's "k_euler_a" and "sample_euler" too
std::vector<std::string> keys_of(const std::string& text) {
  std::vector<std::string> keys{folded(text)};
  for (std::string_view begin : {"k", "sample"})
    if (keys[0].starts_with(begin)) keys.push_back(keys[0].substr(begin.size()));
  return keys;
}

std::optional<Named> find_sampler(const std::string& text) {
  std::optional<Named> found;
  for (auto& key : keys_of(text))
    each_reading(key, [&](std::string_view base, const Schedule* schedule) {
      const Sampler* sampler = found ? nullptr : sampler_of(base);
      if (sampler && (!schedule || sampler->takes_schedules)) found = Named{sampler, schedule};
    });
  return found;
}

// What stands for a sampler that is not here, or that does not take the schedule it is named with.
std::string nearest(const std::string& text) {
  std::string found;
  for (auto& key : keys_of(text))
    each_reading(key, [&](std::string_view base, const Schedule* schedule) {
      if (!found.empty()) return;
      const auto row = std::find_if(std::begin(kNearest), std::end(kNearest), [&](auto& r) { return r.first == base; });
      const Sampler* sampler = row == std::end(kNearest) ? sampler_of(base) : sampler_of(folded(row->second));
      if (sampler) found = Named{sampler, sampler->takes_schedules ? schedule : nullptr}.text();
    });
  return found;
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (auto& n : names) out += (out.empty() ? "" : ", ") + n;
  return out;
}

// A value as JSON has it; what is none is a string.
Object value_of(const std::string& key, const std::string& text) {
  std::string where = "--scheduler-option " + key;
  try {
    return *io::parse_config("{\"v\": " + text + "}", where).find("v");
  } catch (const ValueError&) {
    return Object(std::string_view(text));
  }
}

}  // namespace

std::vector<std::string> sampler_names() {
  std::vector<std::string> names;
  for (auto& s : samplers()) {
    names.push_back(s.name);
    if (s.takes_schedules) names.push_back(Named{&s, &kSchedules[0]}.text());
  }
  return names;
}

bool is_sampler(const std::string& text) { return find_sampler(text).has_value(); }

std::string sampler_named(const std::string& text, const char* option) {
  if (auto found = find_sampler(text)) return found->text();
  if (std::string here = nearest(text); !here.empty())
    fail(option, ": there is no '", printable(text), "' here; the nearest that is: ", here);
  for (auto& s : kSchedules)
    SF_CHECK(folded(text) != s.name, option, ": '", text, "' is no sampler but how its steps are spread: --scheduler ",
             s.name);
  const std::vector<std::string> known = sampler_names();
  fail(option, ": there is no '", printable(text), "'", did_you_mean(text, known, "there are " + list(known)));
}

NamedSchedule schedule_named(const std::string& text) {
  const std::string key = folded(text);
  for (auto& schedule : kSchedules)
    if (key == schedule.name) {
      NamedSchedule out{"", {std::string(schedule.field) + "=true"}};
      for (auto& other : kSchedules)
        if (&other != &schedule) out.options.push_back(std::string(other.field) + "=false");
      return out;
    }
  for (std::string_view usual : {"automatic", "normal", "discrete", "default", "uniform"})
    if (key == usual) return {};
  for (std::string_view trailing : {"sgmuniform", "simple", "trailing"})
    if (key == trailing) return {"", {"timestep_spacing=trailing"}};
  if (is_sampler(text) || !nearest(text).empty()) return {sampler_named(text, "--scheduler"), {}};
  std::vector<std::string> known{"karras", "exponential", "beta", "sgm-uniform", "normal"};
  const std::string schedules = list(known);
  for (auto& name : sampler_names()) known.push_back(name);
  fail("--scheduler: there is no '", printable(text), "'",
       did_you_mean(text, known, "steps are spread by " + schedules + ", and --sampler says which sampler takes them"));
}

std::unique_ptr<diffusion::Scheduler> make_sampler(const std::string& name, diffusion::Scheduler& own,
                                                   const std::vector<std::string>& scheduler_options) {
  std::string class_name = own.name();
  Object config = Object::container(Object::Dict), present = own.config();
  for (size_t i = 0; i + 1 < present.items().size(); i += 2)
    if (std::string key = present.items()[i].text(); key != "_use_default_values")
      io::set_entry(config, key, present.items()[i + 1]);
  if (!name.empty()) {
    const Named found = *find_sampler(sampler_named(name));
    class_name = found.sampler->class_name;
    for (auto& [key, value] : found.sampler->fields) io::set_entry(config, key, value);
    if (found.schedule)
      for (auto& s : kSchedules) io::set_entry(config, std::string(s.field), Object(&s == found.schedule));
  }
  for (auto& option : scheduler_options) {
    size_t equals = option.find('=');
    SF_CHECK(equals != std::string::npos && equals > 0, "--scheduler-option: must be field=value, got '", option, "'");
    std::string key = option.substr(0, equals);
    io::set_entry(config, key, value_of(key, option.substr(equals + 1)));
  }
  auto made = diffusion::make_scheduler(class_name, config);
  for (auto& option : scheduler_options) {
    std::string key = option.substr(0, option.find('='));
    std::vector<std::string> fields;
    for (auto& f : made->fields()) fields.push_back(f.name);
    const bool known = std::find(fields.begin(), fields.end(), key) != fields.end();
    for (auto& s : kSchedules)
      SF_CHECK(known || key != s.field, "--scheduler: ", class_name, " takes no ", s.name,
               " schedule; name a sampler that does: --sampler euler-", s.name, " or dpm++2m-", s.name);
    SF_CHECK(known, "--scheduler-option: ", class_name, " has no field '", key, "'", did_you_mean(key, fields));
  }
  return made;
}

}  // namespace sf::cli
