// What the emulator says that its kernels are compiled for: every GPU that it can be (SF_CUDA_EMULATOR_GPU).
#pragma once
#define SF_CUDA_ARCHS "80-real,86-real,89-real,90a-real,100-real,120-real"
