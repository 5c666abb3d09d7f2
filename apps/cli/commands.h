// One function per subcommand: adds it to the program.
#pragma once
#include <CLI/CLI.hpp>

namespace sf::cli {

void add_bench(CLI::App& program);
void add_completion(CLI::App& program);
void add_convert(CLI::App& program);
void add_demo(CLI::App& program);
void add_devices(CLI::App& program);
void add_env(CLI::App& program);
void add_eval(CLI::App& program);
void add_help(CLI::App& program);
void add_img2img(CLI::App& program);
void add_img2vid(CLI::App& program);
void add_inpaint(CLI::App& program);
void add_inspect(CLI::App& program);
void add_interpolate(CLI::App& program);
void add_launch(CLI::App& program);
void add_models(CLI::App& program);
void add_ops(CLI::App& program);
void add_quantize(CLI::App& program);
void add_serve(CLI::App& program);
void add_train(CLI::App& program);
void add_train_lora(CLI::App& program);
void add_txt2img(CLI::App& program);
void add_txt2vid(CLI::App& program);
void add_upscale(CLI::App& program);
void add_version(CLI::App& program);

}  // namespace sf::cli
