# libscaffolding_cuda.so: every *.cu, *.cuda.cpp and *.cudnn.cpp. The core library knows nothing of it: it is loaded on
# the first use of a CUDA device. The CUDA runtime is linked statically and hidden, the driver is found at run time.
set(SF_CUDA_ARCHS "90a-real" CACHE STRING
    "GPUs to compile for: compute capabilities (80-real;90a-real;120), or release")
set(sf_cuda_archs ${SF_CUDA_ARCHS})
if(sf_cuda_archs STREQUAL "release")
  set(sf_cuda_archs 80-real 86-real 89-real 90a-real 100-real 120)   # the last one with PTX, for GPUs to come
endif()

include(CheckLanguage)
set(CMAKE_CUDA_ARCHITECTURES OFF)   # the flags below say it: CMake 3.25 does not know 90a
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "SF_BUILD_CUDA needs nvcc: install the CUDA toolkit and put nvcc on the PATH, "
                      "or set CMAKE_CUDA_COMPILER")
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)   # CMake 3.25 knows nvcc up to C++17
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)

set(sf_cuda_codes "")
foreach(arch ${sf_cuda_archs})
  if(NOT arch MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
    message(FATAL_ERROR "SF_CUDA_ARCHS: '${arch}' is no compute capability such as 90a-real")
  endif()
  set(codes sm_${CMAKE_MATCH_1} compute_${CMAKE_MATCH_1})
  if(CMAKE_MATCH_2 STREQUAL "-real")
    list(REMOVE_AT codes 1)
  elseif(CMAKE_MATCH_2 STREQUAL "-virtual")
    list(REMOVE_AT codes 0)
  endif()
  list(JOIN codes "," codes)
  list(APPEND sf_cuda_codes "SHELL:-gencode arch=compute_${CMAKE_MATCH_1},code=[${codes}]")
endforeach()

set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/keep_resource_report.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})
add_library(scaffolding_cuda SHARED ${sf_cuda})
# "size": a ninth of what nvcc's default leaves, in the same time.
# ptxas -v: cmake/keep_resource_report.sh keeps what it says.
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  list(APPEND sf_cuda_codes --compress-mode=size)
endif()
# --expt-relaxed-constexpr: kernels call the constexpr conversions of core/half.h.
# 186: templates over integers ask whether unsigned ones are negative.
target_compile_options(
  scaffolding_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:${sf_cuda_codes} -Xptxas=-v --expt-relaxed-constexpr -diag-suppress=186>
  $<$<COMPILE_LANGUAGE:CXX>:${SF_WARNINGS}>)
list(JOIN sf_cuda_archs "," sf_cuda_archs_text)   # a definition with a semicolon would be several
target_compile_definitions(scaffolding_cuda PRIVATE "SF_CUDA_ARCHS=\"${sf_cuda_archs_text}\"")
target_link_libraries(scaffolding_cuda PRIVATE scaffolding CUDA::cudart_static ${CMAKE_DL_LIBS})
target_link_options(scaffolding_cuda PRIVATE -Wl,--exclude-libs,ALL)
if(NOT SF_SANITIZE)
  target_link_options(scaffolding_cuda PRIVATE -Wl,-z,defs)
endif()
set_target_properties(scaffolding_cuda PROPERTIES INSTALL_RPATH $ORIGIN LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
                      CUDA_RUNTIME_LIBRARY Static)
