// `scaffolding serve`: models kept in memory, and pictures for whoever asks by an API of OpenAI's, AUTOMATIC1111's or
// our own.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "apps/cli/commands.h"
#include "scaffolding/core/error.h"
#if SF_WITH_SERVER
#include "apps/cli/files.h"
#include "apps/cli/quantize_option.h"
#include "apps/cli/samplers.h"
#include "scaffolding/diffusion/memory/plan.h"
#include "scaffolding/server/server.h"
#endif

namespace sf::cli {

#if SF_WITH_SERVER

namespace {

struct ServeOptions {
  server::ServerSettings settings;
  std::string tokens, new_token, dtype = "float32", device = "cpu", quantize, memory, gpu_memory;
  bool admin = false, no_previews = false;
  double drain = 30, body_mb = 64, bodies_mb = 512, keep_gb = 0;
  int64_t most_jobs = 1000, most_together = 8;
};

server::Samplers samplers_by_name() {
  return {.names = sampler_names(),
          .named = [](const std::string& name) { return sampler_named(name, "sampler"); },
          .schedule =
              [](const std::string& name) {
                const NamedSchedule s = schedule_named(name);
                return server::Samplers::Schedule{s.sampler, s.options};
              },
          .make = make_sampler};
}

std::string usual_data_folder() {
  if (const char* state = std::getenv("XDG_DATA_HOME"); state && *state)
    return std::string(state) + "/scaffolding/serve";
  const char* home = std::getenv("HOME");
  SF_CHECK(home && *home, "serve: there is no home folder to keep the history in; --data names one");
  return std::string(home) + "/.local/share/scaffolding/serve";
}

void write_token(const ServeOptions& o) {
  const std::string& name = o.new_token;
  SF_CHECK(name.find_first_of(" \t\n#") == name.npos, "--new-token: a name has no spaces and no '#', got '", name, "'");
  const std::string token = server::random_token();
  std::cout << name << " " << server::hash_of_token(token) << (o.admin ? " admin" : "") << std::endl;
  std::cerr << "scaffolding: the token of " << name << " is " << token
            << "\nscaffolding: it is told once; the line on standard output belongs into the file of --tokens\n";
}

void serve(ServeOptions o) {
  if (!o.new_token.empty()) return write_token(o);
  server::ServerSettings& s = o.settings;
  if (!o.tokens.empty()) s.guard.tokens = server::read_tokens(o.tokens);
  if (s.data.empty()) s.data = usual_data_folder();
  for (auto& folder : s.runs)
    SF_CHECK(std::filesystem::is_directory(folder), "--runs: there is no folder '", folder, "'");
  s.shelf.weights.dtype = dtype_of("--dtype", o.dtype);
  s.shelf.weights.quantize = o.quantize;
  s.shelf.device = Device(o.device);
  if (!o.memory.empty()) s.shelf.budget = uint64_t(diffusion::bytes_of("--max-ram", o.memory));
  if (!o.gpu_memory.empty()) {
    SF_CHECK(s.shelf.device.is_cuda(), "--max-vram: is of a GPU, and --device is ", o.device);
    s.shelf.gpu_budget = uint64_t(diffusion::bytes_of("--max-vram", o.gpu_memory));
  }
  s.http.body_bytes = size_t(o.body_mb * (1 << 20)), s.http.bodies_bytes = size_t(o.bodies_mb * (1 << 20));
  s.jobs.queue.jobs = size_t(o.most_jobs);
  s.jobs.most_together = size_t(o.most_together);
  s.jobs.previews = !o.no_previews;
  s.jobs.retention.bytes = int64_t(o.keep_gb * 1e9);

  // Before any thread is there, so that all of them leave the signals to this one.
  sigset_t stops;
  sigemptyset(&stops);
  for (int signal : {SIGTERM, SIGINT}) sigaddset(&stops, signal);
  pthread_sigmask(SIG_BLOCK, &stops, nullptr);
  for (int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);  // what fails says so, at `ulimit -f` too

  const std::string host = s.host.find(':') == s.host.npos ? s.host : "[" + s.host + "]";
  server::Server server(std::move(s), samplers_by_name());
  std::cout << "http://" << host << ":" << server.port() << std::endl;
  int signal = 0;
  sigwait(&stops, &signal);
  // A second signal does not wait for what runs.
  pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
  server.stop(o.drain);
}

}  // namespace

void add_serve(CLI::App& program) {
  auto* c = program.add_subcommand("serve", "Make pictures for programs and people, over HTTP");
  auto o = std::make_shared<ServeOptions>();
  server::ServerSettings& s = o->settings;
  c->add_option("--host", s.host, "The address to listen on; others than this machine's need --tokens")
      ->capture_default_str();
  c->add_option("--port", s.port, "0: one that is free")->capture_default_str();
  c->add_option("--data", s.data, "The folder of jobs and pictures; without it ~/.local/share/scaffolding/serve");
  c->add_option("--database", s.database,
                "postgresql://user@host/name: the history of several servers, pictures included, instead of --data's")
      ->group("Several machines");
  c->add_option("--lease", s.lease, "Seconds after which the jobs of a server that is gone are others'")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 3600.0))
      ->group("Several machines");
  c->add_option("--models", s.shelf.folders, "A folder of models, in it and below; may be given again")
      ->allow_extra_args(false);
  c->add_option("--model", s.shelf.default_model, "The name of the one that requests without a model get");
  c->add_option("--lora-dir", s.shelf.lora_folders, "A folder of LoRAs; may be given again")->allow_extra_args(false);
  c->add_option("--controlnet-dir", s.shelf.controlnet_folders, "A folder of ControlNets; may be given again")
      ->allow_extra_args(false);
  c->add_option("--runs", s.runs, "A folder of a training run, or with some in it, for the page; may be given again")
      ->allow_extra_args(false);
  c->add_option("--dtype", o->dtype, "float32, bfloat16 or float16")->capture_default_str();
  add_quantize_option(*c, o->quantize);
  c->add_option("--device", o->device, "Where the networks run: cpu, cuda or cuda:1")->capture_default_str();
  c->add_option("--max-ram", o->memory,
                "Memory for the weights of models, as 6 or 5.5GiB; without it, three quarters "
                "of what is free");
  c->add_option("--max-vram", o->gpu_memory,
                "The same of the GPU's memory; models that have no room there wait in the host's");
  c->add_option("--max-batch", o->most_together,
                "Pictures at a time, of one model and size, where that is quicker; 1: one after the other")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  c->add_flag("--no-previews", o->no_previews, "Nothing is shown of pictures before they are done");
  c->add_option("--tokens", o->tokens, "A file of tokens: whoever has none is refused")->group("Access");
  c->add_option("--new-token", o->new_token, "Write a token of this name, and its line for the file of --tokens")
      ->group("Access");
  c->add_flag("--admin", o->admin, "Of --new-token: sees everybody's jobs, and may refresh and unload models")
      ->group("Access");
  c->add_option("--allow-host", s.guard.hosts, "A name that this server goes by; may be given again")
      ->allow_extra_args(false)
      ->group("Access");
  c->add_option("--allow-origin", s.guard.origins,
                "A site whose pages may call, as https://example.org; may be given again")
      ->allow_extra_args(false)
      ->group("Access");
  c->add_option("--public-url", s.public_url, "The address that clients know it by, for addresses of pictures")
      ->group("Access");
  c->add_option("--jobs-per-minute", s.guard.jobs_per_minute, "Of each token; 0: as many as it likes")
      ->check(CLI::Range(0, 1000000))
      ->group("Limits");
  c->add_option("--max-queue", o->most_jobs, "Jobs that may wait")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000))
      ->group("Limits");
  c->add_option("--max-pixels", s.requests.pixels, "Of a picture that is made")
      ->capture_default_str()
      ->check(CLI::Range(64, 1 << 28))
      ->group("Limits");
  c->add_option("--max-steps", s.requests.steps, "Of a picture")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000))
      ->group("Limits");
  c->add_option("--max-frames", s.requests.frames, "Of a clip")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536))
      ->group("Limits");
  c->add_option("--max-pictures", s.requests.pictures, "Of a job")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000))
      ->group("Limits");
  c->add_option("--max-body", o->body_mb, "Megabytes of a request")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 4096.0))
      ->group("Limits");
  c->add_option("--max-bodies", o->bodies_mb, "Megabytes of all requests at a time")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 65536.0))
      ->group("Limits");
  c->add_option("--max-waiting", s.jobs.most_waiting, "Seconds that a job may wait for its turn; then it fails")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9))
      ->group("Limits");
  c->add_option("--max-seconds", s.jobs.most_running, "That a job may run")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e9))
      ->group("Limits");
  c->add_option("--url-seconds", s.requests.url_seconds,
                "That the address of a picture is good which OpenAI's API gives")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e9))
      ->group("Limits");
  c->add_option("--keep-days", s.jobs.retention.days, "Pictures and jobs go after so many days; 0: never")
      ->check(CLI::Range(0.0, 1e6))
      ->group("Limits");
  c->add_option("--keep-pictures", s.jobs.retention.pictures, "The newest so many stay; 0: all")
      ->check(CLI::Range(int64_t(0), INT64_MAX))
      ->group("Limits");
  c->add_option("--keep-gigabytes", o->keep_gb, "Of pictures, the newest; 0: all")
      ->check(CLI::Range(0.0, 1e6))
      ->group("Limits");
  c->add_option("--drain", o->drain, "Seconds that a running job has when the server is stopped")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  c->add_flag("--log-requests", s.log_requests, "A line for each request on standard error, besides those of jobs");
  c->footer(R"(Examples:
  scaffolding serve --port 7860
  scaffolding serve --models ~/models --lora-dir ~/loras --dtype bfloat16 --data ~/pictures
  scaffolding serve --new-token anna          # its line for the file of --tokens)");
  c->callback([o] { serve(*o); });
}

#else

void add_serve(CLI::App& program) {
  auto* c = program.add_subcommand("serve", "Make pictures for programs and people, over HTTP");
  c->allow_extras();
  c->footer("Example:\n  scaffolding serve");
  c->callback([] {
    fail<NotSupported>(
        "serve: this build has no server; it needs Boost's headers and SQLite (Debian: "
        "libboost1.81-dev libsqlite3-dev)");
  });
}

#endif

}  // namespace sf::cli
