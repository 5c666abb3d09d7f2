// What the two files of AUTOMATIC1111's API share. Functions that any thread may call.
#pragma once
#include <string>

namespace sf::server {

// "Euler a" for euler-a: as that program's clients know samplers.
std::string webui_sampler(const std::string& name);

}  // namespace sf::server
