// LoRAs below folders, by name: the web UI's models/Lora. Found as it finds them: in all subfolders, by the file's name
// without its suffix, or else by what the training program called it ("ss_output_name"). One thread at a time.
#pragma once
#include <string>
#include <vector>

namespace sf::models {

// How a LoRA is called: its file's name without the suffix, or its folder's.
std::string lora_name(const std::string& path);
// Whether it is a file, or a folder with a file of PEFT's or diffusers' in it, or with PEFT's for each component.
bool is_lora_path(const std::string& path);

class LoraFolders {
 public:
  // RuntimeError for one that is no folder; what cannot be read below it is passed over.
  explicit LoraFolders(std::vector<std::string> folders);

  // Files .safetensors, .pt, .bin and .ckpt, and folders as is_lora_path() takes them, that have this name, with its
  // suffix or without; with a '/', that place below a folder alone ("styles/ink", "./ink"). More than one: they differ.
  std::vector<std::string> find(const std::string& name) const;
  std::vector<std::string> names() const;  // in order, each once
  const std::vector<std::string>& folders() const { return folders_; }

 private:
  struct Entry {
    std::string path, place;  // place: below its folder
    std::string name, file;   // without the suffix and with it
  };
  std::vector<std::string> folders_;
  std::vector<Entry> entries_;
};

}  // namespace sf::models
