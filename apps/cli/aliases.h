// The command line of those who come from other programs, in this one's words: commands and options of AUTOMATIC1111's
// web UI, stable-diffusion.cpp, InvokeAI and diffusers, and underscores for hyphens in every option. Functions only.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace sf::cli {

// The arguments behind the program's name, with options that the command has under another name renamed; what a command
// has itself always counts first. ValueError for options that it has under none, in the order in which they were given,
// with what they may have been meant to be.
std::vector<std::string> in_our_words(CLI::App& program, const std::vector<std::string>& arguments);

// The command that goes by such a name elsewhere: "generate" is "txt2img". The name itself when there is none.
std::string our_command(const std::string& name);

// The name that the command has for an option of such a name, without hyphens in front: "cfg_scale" is "guidance". ""
// when it has none.
std::string our_name(const CLI::App& command, const std::string& name);

}  // namespace sf::cli
