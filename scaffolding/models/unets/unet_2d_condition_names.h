// The names of UNets' blocks in CompVis' files, of networks that have some of them.
#pragma once
#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

// CompVis' UNetModel counts all its blocks in one row, in the order in which they run: those with weights, and the
// resampling behind a level's last.
void ldm_unet_names(const TensorList& unet, NameRules& rules);

}  // namespace sf::models
