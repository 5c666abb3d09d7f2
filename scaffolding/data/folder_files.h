// The files that data sets of folders are made of. Functions only; any thread. Not public.
#pragma once
#include <string>
#include <vector>

namespace sf::data {

// Names of the regular files of a folder and of those below it, relative to it, sorted; hidden ones are left out.
// ValueError of `who` where there is no such folder.
std::vector<std::string> files_below(const std::string& root, const char* who);
std::string text_of(const std::string& path);
std::string trimmed(std::string s);                 // without white space at its end
bool stays_inside(const std::string& name);         // a relative name of something below the folder it is relative to
std::string lower_suffix(const std::string& name);  // ".png" of "a.PNG"

}  // namespace sf::data
