// The states of a run's parts as trees for torch's file format, and back: the trees that Python's state_dict()s give,
// so that a run begun in one language goes on in the other. ValueError or TypeError for trees of other shapes.
#pragma once
#include "scaffolding/data/dataloader.h"
#include "scaffolding/io/object.h"
#include "scaffolding/optim/optim.h"

namespace sf::train {

// New files of a checkpoint under way: CheckpointFolders::commit syncs them,
// so that they need not be replaced one by one.
void write_torch(const io::Object& object, const std::string& path);
void write_safetensors(const std::map<std::string, Tensor>& tensors, const std::string& path);

io::Object to_object(const optim::StateDict& state);  // as torch.optim's state_dict()
optim::StateDict optimizer_state(const io::Object& o);
io::Object to_object(const std::map<std::string, Value>& state);  // a schedule's
std::map<std::string, Value> scheduler_state(const io::Object& o);
io::Object to_object(const data::DataLoaderState& state);
data::DataLoaderState loader_state(const io::Object& o);
io::Object to_object(const optim::ScaleState& state, const optim::GradScalerOptions& options);
optim::ScaleState scaler_state(const io::Object& o);
// The default generators of the CPU and of `device`. Python's file has those of `random` and NumPy besides.
io::Object random_states(Device device);
void set_random_states(const io::Object& o, Device device);

}  // namespace sf::train
