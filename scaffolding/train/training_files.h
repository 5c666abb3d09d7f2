// The states of a run's parts as trees for torch's file format, and back. ValueError or TypeError for trees of other shapes.
#pragma once
#include "scaffolding/data/dataloader.h"
#include "scaffolding/io/object.h"
#include "scaffolding/optim/optim.h"

namespace sf::train {

// New files of a checkpoint under way: CheckpointFolders::commit syncs them, so that they need not be replaced one by one.
void write_torch(const io::Object& object, const std::string& path);
void write_safetensors(const std::map<std::string, Tensor>& tensors, const std::string& path);

io::Object to_object(const optim::StateDict& state);  // as torch.optim's state_dict()
optim::StateDict optimizer_state(const io::Object& o);
io::Object to_object(const std::map<std::string, Value>& state);  // a schedule's
std::map<std::string, Value> scheduler_state(const io::Object& o);
io::Object to_object(const data::DataLoaderState& state);
data::DataLoaderState loader_state(const io::Object& o);
io::Object to_object(const optim::ScaleState& state);
optim::ScaleState scaler_state(const io::Object& o);
io::Object to_object(const std::vector<uint8_t>& bytes);  // a generator's state: a uint8 tensor
std::vector<uint8_t> bytes_of(const io::Object& o);

}  // namespace sf::train
