// The names of UNets' parts in CompVis' files, of networks that have some of them.
#pragma once
#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

// CompVis' UNetModel counts all its blocks in one row, in the order in which they run: those with weights, and the
// resampling behind a level's last.
// The embeddings and the first convolution besides. Of a network that has some of them the others do no harm.
void ldm_unet_names(const TensorList& unet, NameRules& rules);
std::string name_at(const std::string& list, int64_t i);  // "down_blocks.2"

}  // namespace sf::models
