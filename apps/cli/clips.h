// Clips that commands write and read. Functions only.
#pragma once
#include <string>

#include "scaffolding/diffusion/pipelines/run.h"

namespace sf::cli {

// ValueError naming the option for a path that says no kind of video, or a number of frames a second that none has;
// NotSupported where this build cannot write it. Else as check_output.
void check_clip_output(const char* option, const std::string& path, double fps);

bool is_frame_folder(const std::string& path);  // a folder of pictures, or frames/%04d.png

// Where the sound of a clip goes whose file holds none; empty where the file does.
std::string sound_path(const std::string& path);

// The frames of a clip, uint8 [H, W, 3], with what it shows and how it was made where the file can say so. Its sound
// [channels, samples], where there is any, goes into the file where that holds some.
void write_clip(const std::string& path, const Tensors& frames, const diffusion::Sound& sound, double fps,
                const std::string& title, const std::string& settings);

}  // namespace sf::cli
