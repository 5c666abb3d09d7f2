// Results of commands never take the place of what is there, unless --force says so: "cat.png" becomes "cat-1.png", the
// first name that is free. Functions only.
#pragma once
#include <functional>
#include <string>

namespace sf::cli {

// `write` gets a path beside `path`, of the same suffix, and makes the file there. That takes the first free name,
// which no other process can have taken meanwhile. force: it is written to `path`, in place of what is there. frames:
// it is a folder of pictures, or their pattern in one (frames/%04d.png), and the folder gets the number. Returns the
// path that it has.
std::string write_new(const std::string& path, bool force, const std::function<void(const std::string& path)>& write,
                      bool frames = false);

}  // namespace sf::cli
