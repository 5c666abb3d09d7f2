# The suffix of a file says which library it goes into. A new file needs no edit here.
#   x.cpp core · x.cpu.cpp core, once per instruction set
#   x.amx.cpp core, for tiles (AMX) and with tiles in plain C++
#   x.onednn.cpp core where oneDNN is · x.accelerate.cpp core on Apple
#   x.cu, x.cuda.cpp, x.cudnn.cpp libscaffolding_cuda.so · x.libav.cpp libscaffolding_video.so
#   x.gloo.cpp libscaffolding_gloo.so · x.mpi.cpp libscaffolding_mpi.so · x.nccl.cpp libscaffolding_nccl.so
#   server/ and x.beast.cpp, x.sqlite.cpp libscaffolding_server.a, its x.postgres.cpp libscaffolding_postgres.so
#   (cmake/server.cmake)
#   x_test.cpp tests · x_bench.cpp benchmarks · x_fuzz.cpp fuzz targets
file(GLOB_RECURSE sf_all CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scaffolding/*.cpp)

set(sf_cpu ${sf_all})
list(FILTER sf_cpu INCLUDE REGEX "\\.cpu\\.cpp$")
set(sf_amx ${sf_all})
list(FILTER sf_amx INCLUDE REGEX "\\.amx\\.cpp$")
set(sf_onednn ${sf_all})
list(FILTER sf_onednn INCLUDE REGEX "\\.onednn\\.cpp$")
set(sf_core ${sf_all})
list(FILTER sf_core EXCLUDE REGEX
     "(/op_check\\.cpp|/[^/]*\\.[a-z0-9]+\\.cpp|_test\\.cpp|_bench\\.cpp|_fuzz\\.cpp|/backend/cuda/.*)$")
list(FILTER sf_core EXCLUDE REGEX "/scaffolding/server/")
set(sf_tests ${sf_all})
list(FILTER sf_tests INCLUDE REGEX "(_test|_fuzz|/ops/op_check)\\.cpp$")   # the tests drive the fuzz targets too
set(sf_benches ${sf_all})
list(FILTER sf_benches INCLUDE REGEX "_bench\\.cpp$")
file(GLOB_RECURSE sf_cuda CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scaffolding/*.cu
     ${PROJECT_SOURCE_DIR}/scaffolding/*.cuda.cpp ${PROJECT_SOURCE_DIR}/scaffolding/*.cudnn.cpp)

# What calls ops and has no hot loop of its own: -O1 compiles in two thirds of the time, and
# with sanitizers -O0 in two thirds of that.
set(sf_upper ${sf_core})
list(FILTER sf_upper INCLUDE REGEX
     "/scaffolding/(diffusion|distributed|io/hub|models|nn|optim|tokenizers|train)/")
list(FILTER sf_upper EXCLUDE REGEX "/scaffolding/train/evaluation/")   # which looks at pictures
list(REMOVE_ITEM sf_core ${sf_upper})
add_library(sf_upper OBJECT ${sf_upper})
target_compile_options(sf_upper PRIVATE $<$<CONFIG:Release>:-O1>)
target_compile_options(sf_upper PRIVATE ${sf_sanitized_upper})
add_library(sf_core OBJECT ${sf_core})
include(cmake/embedded.cmake)
# Known models are recognised by these.
file(GLOB sf_configs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scaffolding/models/configs/*.json)
sf_embed(target sf_core out embedded_configs.cpp header scaffolding/models/configs/embedded_configs.h
         namespace sf::models type EmbeddedConfig function embedded_configs names STEM files ${sf_configs})
include(cmake/embedded_tables.cmake)

# Own CPU kernels, compiled once per instruction set, each in its own namespace sf::<isa>;
# the best supported one wins at run time.
set(SF_ISAS "base;avx2;avx512;avx512bf16" CACHE STRING
    "Instruction sets to compile CPU kernels for (x86-64), or native: this machine's best alone")
set(sf_tile_isas "")
if(SF_ISAS STREQUAL "native")   # what backend/cpu/isa.cpp would choose
  set(SF_ISAS base)
  file(READ /proc/cpuinfo sf_cpuinfo LIMIT 20000)
  if(sf_cpuinfo MATCHES " avx512_bf16 ")
    set(SF_ISAS avx512bf16)
    if(sf_cpuinfo MATCHES " amx_bf16 ")
      set(sf_tile_isas avx512amx)
    endif()
  elseif(sf_cpuinfo MATCHES " avx512vl ")
    set(SF_ISAS avx512)
  elseif(sf_cpuinfo MATCHES " avx2 ")
    set(SF_ISAS avx2)
  endif()
elseif(avx512bf16 IN_LIST SF_ISAS)   # with those for tiles; amx_emulated stands for those in plain C++ alone
  set(sf_tile_isas avx512amx amx_emulated)
elseif(amx_emulated IN_LIST SF_ISAS)
  set(sf_tile_isas amx_emulated)
endif()
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(SF_ISAS base)
  set(sf_tile_isas "")
endif()
set(isa_flags_base "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(isa_flags_base -march=x86-64-v2 -O1)   # processors of before 2013: correct is enough, and it halves the build
endif()
set(isa_flags_avx2 -march=x86-64-v3)
set(isa_flags_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
set(isa_flags_avx512bf16 -march=x86-64-v4 -mavx512bf16 -mprefer-vector-width=512)
set(isa_priority_base 0)
set(isa_priority_avx2 1)
set(isa_priority_avx512 2)
set(isa_priority_avx512bf16 3)
# What avx512bf16 adds nothing to: no instruction of it is in their code, which avx512's is then, to the last one; and
# what is called from no other file of theirs.
set(sf_without_bf16 data/icon_kernel data/picture_kernel io/pictures/yuv_kernel ops/grid_sample/grid_sample
    ops/int_mm/int_mm ops/pointwise/pointwise_logical ops/pool/max_pool ops/quantize/gguf_int8 ops/random/box_muller
    ops/random/uniform_range ops/reduce/arg_reduce ops/reduce/reduce ops/reduce/scan)
# The same pictures for a training, and the same products of quantised numbers, on every machine: a fused multiply-add
# rounds otherwise.
set_source_files_properties(${PROJECT_SOURCE_DIR}/scaffolding/data/icon_kernel.cpu.cpp
                            ${PROJECT_SOURCE_DIR}/scaffolding/ops/quantize/gguf_int8.cpu.cpp
                            ${PROJECT_SOURCE_DIR}/scaffolding/ops/quantize/int8_product.amx.cpp
                            ${PROJECT_SOURCE_DIR}/scaffolding/ops/quantize/int8_product.cpu.cpp
                            ${PROJECT_SOURCE_DIR}/scaffolding/ops/quantize/int8_norm_quantize.cpu.cpp
                            ${PROJECT_SOURCE_DIR}/scaffolding/ops/quantize/int8_quantize.cpu.cpp
                            PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Eight vectors side by side, not one after the other: a chain of one is longer than what processors look ahead.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/scaffolding/ops/fuse/fuse_steps.cpu.cpp
                              PROPERTIES COMPILE_OPTIONS "-fschedule-insns;-fsched-pressure")
endif()
# Small kernels whose headers take longer to compile than what is in them: one unit for each instruction set.
if(SF_UNITY)
  set(sf_small_kernels
      ops/adamw/adamw ops/copy/copy_convert ops/copy/reverse ops/copy/transpose ops/copy/whole_numbers
      ops/fused/filtered_snake/filtered_snake ops/fused/framed_norm/norm_silu_framed ops/fused/modulate/modulate
      ops/fused/spatial_norm/spatial_norm ops/index/index_add ops/quantize/dequantize ops/quantize/fp8 ops/search/count
      optim/multi_tensor optim/sgd)
  set(sf_small_text "")
  foreach(name ${sf_small_kernels})
    list(REMOVE_ITEM sf_cpu ${PROJECT_SOURCE_DIR}/scaffolding/${name}.cpu.cpp)
    string(APPEND sf_small_text "#include \"scaffolding/${name}.cpu.cpp\"\n")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/unity/small_kernels.cpu.cpp CONTENT "${sf_small_text}" @ONLY)
  list(APPEND sf_cpu ${PROJECT_BINARY_DIR}/unity/small_kernels.cpu.cpp)
endif()
set(sf_vector_isas ${SF_ISAS})
list(REMOVE_ITEM sf_vector_isas amx_emulated)
set(sf_isa_objects "")
foreach(isa ${sf_vector_isas})
  set(sf_isa_sources ${sf_cpu})
  if(isa STREQUAL "avx512bf16" AND avx512 IN_LIST SF_ISAS)   # else they are compiled for it all the same
    list(JOIN sf_without_bf16 "|" sf_twice)
    list(FILTER sf_isa_sources EXCLUDE REGEX "/scaffolding/(${sf_twice})\\.cpu\\.cpp$")
  endif()
  add_library(sf_cpu_${isa} OBJECT ${sf_isa_sources})
  target_compile_options(sf_cpu_${isa} PRIVATE ${isa_flags_${isa}}
                         -ffp-contract=fast -fno-math-errno -fno-trapping-math ${sf_sanitized_kernels})
  target_compile_definitions(sf_cpu_${isa} PRIVATE SF_ISA=${isa} SF_ISA_PRIORITY=${isa_priority_${isa}})
  list(APPEND sf_isa_objects sf_cpu_${isa})
endforeach()

# Instructions for tiles are written as such, so that any compiler knows them. Before oneDNN's kernels (priority 10).
set(isa_flags_avx512amx ${isa_flags_avx512bf16})
set(isa_flags_amx_emulated -march=x86-64-v2 -O2 -DSF_AMX_EMULATED -Wno-psabi)
foreach(isa ${sf_tile_isas})
  add_library(sf_cpu_${isa} OBJECT ${sf_amx})
  target_compile_options(sf_cpu_${isa} PRIVATE ${isa_flags_${isa}} -ffp-contract=fast -fno-math-errno
                                               -fno-trapping-math ${sf_sanitized_kernels})
  target_compile_definitions(sf_cpu_${isa} PRIVATE SF_ISA=${isa} SF_ISA_PRIORITY=12 SF_AMX_ALONE)
  list(APPEND sf_isa_objects sf_cpu_${isa})
endforeach()

set(sf_object_libraries sf_core sf_upper ${sf_isa_objects})
if(SF_ONEDNN AND sf_onednn)
  add_library(sf_onednn OBJECT ${sf_onednn})
  target_link_libraries(sf_onednn PRIVATE DNNL::dnnl)
  list(APPEND sf_object_libraries sf_onednn)
endif()

foreach(part sf_core sf_upper)
  target_link_libraries(${part} PRIVATE nlohmann_json::nlohmann_json ZLIB::ZLIB Eigen3::Eigen ${sf_image_libraries}
                        ${sf_text_libraries})
endforeach()

# One shared library. Base objects come first: where two instruction sets share a weak symbol after all, the linker
# keeps the base one (tests/check_isa_symbols.py sees to it that they do not).
add_library(scaffolding SHARED)
add_library(scaffolding::scaffolding ALIAS scaffolding)
foreach(part ${sf_object_libraries})
  set_target_properties(${part} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${part} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_options(${part} PRIVATE ${SF_WARNINGS} -fno-semantic-interposition)
  target_link_libraries(${part} PRIVATE OpenMP::OpenMP_CXX)
  target_sources(scaffolding PRIVATE $<TARGET_OBJECTS:${part}>)
endforeach()
target_include_directories(scaffolding PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
target_compile_features(scaffolding PUBLIC cxx_std_20)
target_link_libraries(scaffolding PRIVATE OpenMP::OpenMP_CXX ZLIB::ZLIB ${CMAKE_DL_LIBS})
if(UNIX AND NOT APPLE)
  target_link_options(scaffolding PRIVATE -Wl,-Bsymbolic-functions   # calls inside the library need no indirection
                      -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
  set_target_properties(scaffolding PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
endif()
if(TARGET sf_onednn)
  target_link_libraries(scaffolding PRIVATE DNNL::dnnl)
endif()
target_link_libraries(scaffolding PRIVATE ${sf_image_libraries} ${sf_text_libraries})
foreach(format PNG JPEG WEBP)
  if(SF_${format})
    string(TOLOWER ${format} file)
    set_source_files_properties(scaffolding/io/pictures/image_${file}.cpp
                                PROPERTIES COMPILE_DEFINITIONS SF_WITH_${format})
  endif()
endforeach()
if(SF_DEFLATE)
  set_source_files_properties(scaffolding/io/pictures/image_png_write.cpp
                              PROPERTIES COMPILE_DEFINITIONS SF_WITH_DEFLATE)
endif()
set(sf_animation "")
foreach(format GIF WEBP_ANIMATION)
  if(SF_${format})
    list(APPEND sf_animation SF_WITH_${format})
  endif()
endforeach()
set_source_files_properties(scaffolding/io/pictures/animation.cpp scaffolding/io/pictures/animation_gif.cpp
                            scaffolding/io/pictures/animation_webp.cpp scaffolding/io/video/webp_frames.cpp
                            PROPERTIES COMPILE_DEFINITIONS "${sf_animation}")
if(SF_CURL)
  set_source_files_properties(scaffolding/io/hub/http.cpp
                              PROPERTIES COMPILE_DEFINITIONS SF_WITH_CURL INCLUDE_DIRECTORIES ${SF_CURL_INCLUDE})
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT SF_SANITIZE)
  target_link_options(scaffolding PRIVATE -Wl,-z,defs)   # a kernel whose table no file defines fails here, not at start
endif()
if(NOT SKBUILD)   # a wheel is a zip file: every link would become a copy
  set_target_properties(scaffolding PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
endif()
set_source_files_properties(scaffolding/core/version.cpp PROPERTIES COMPILE_DEFINITIONS
  "SF_VERSION=\"${PROJECT_VERSION}\";SF_BUILD_FACTS=\"${CMAKE_BUILD_TYPE}, oneDNN $<IF:$<BOOL:${SF_ONEDNN}>,yes,no>\"")
sf_unity(sf_core)   # after the properties of its sources
sf_unity(sf_upper)
