// Models by name: what --model and --vae mean where they are no paths (io/hub/local_models.h).
#pragma once
#include <string>

#include "scaffolding/io/hub/local_models.h"

namespace sf::cli {

// The models on this machine: what comes with the program, and everything in io::model_places().
std::vector<io::LocalModel> known_models();

// What an option that takes a model means: the name itself where it is a path, a model that comes with the program, or
// a repository of the hub; else the path, or the repository, of the one model of this name here, which standard error
// tells. use: of several, those in folders for this are meant. ValueError listing several, or naming the nearest.
std::string located_model(const std::string& option, const std::string& name, io::ModelUse use = io::ModelUse::Model);
// "; did you mean 'a' or 'b'?", of the models here; "" where none is near.
std::string nearest_models(const std::string& name);
// Where that is loaded from: of a repository that is in the cache whole its folder there, so that no server is asked.
std::string loaded_from(const std::string& located);
// The same of an autoencoder: a path, downloaded where it is a repository's and that is allowed.
std::string vae_loaded_from(const std::string& located);

}  // namespace sf::cli
