// Networks with a config and files, under diffusers' and transformers' names.
#pragma once
#include "scaffolding/models/adapters/save_lora.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/models/autoencoders/autoencoder_tiny.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/models/single_file/single_file.h"
#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/models/text_encoders/t5.h"
#include "scaffolding/models/transformers/dit_model.h"
#include "scaffolding/models/transformers/dit_transformer_2d.h"
#include "scaffolding/models/transformers/pixart_transformer_2d.h"
#include "scaffolding/models/transformers/transformer_2d.h"
#include "scaffolding/models/unets/unet_2d_condition.h"
