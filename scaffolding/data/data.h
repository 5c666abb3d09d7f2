// Pictures and the way to them: data sets, transforms, the loader.
#pragma once
#include "scaffolding/data/cached_rows.h"
#include "scaffolding/data/dataloader.h"
#include "scaffolding/data/dataset.h"
#include "scaffolding/data/icon_dataset.h"
#include "scaffolding/data/image_dataset.h"
#include "scaffolding/data/moving_icons.h"
#include "scaffolding/data/transforms.h"
#include "scaffolding/data/video_dataset.h"
#include "scaffolding/io/pictures/image.h"
