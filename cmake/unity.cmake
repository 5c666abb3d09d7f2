# Several sources in one translation unit: headers take half the time that the files compiled alone would.
# A group is a folder, or the small folders of one parent that begin with neighbouring letters, so that a new file
# changes one group and ccache keeps the others. Files with definitions or options of their own stay alone. Those below,
# whose unnamed namespaces have a name that a neighbour's has too, are joined with strangers. CMake's UNITY_BUILD writes
# where the checkout lies into its files (until 4.0), so that ccache would compile them anew in every clone.
option(SF_UNITY "Compile several sources at once: half the time for a whole build, longer for one changed file" ON)

set(sf_apart
    cli/launch cli/model_names cli/new_file autograd/function_test autograd/gradcheck_test autograd/inplace_test
    data/recolour_test data/transforms_test diffusion/memory/plan_test
    diffusion/schedulers/scheduling_unipc_multistep io/formats/safetensors io/hub/model_folder
    models/autoencoders/autoencoder_kl_cogvideox models/autoencoders/autoencoder_tiny models/autoencoders/vae
    models/parts/feed_forward_test models/parts/norm_test models/parts/projections_test models/parts/seamless_test
    models/single_file/packed_files models/text_encoders/t5 models/transformers/pixart_transformer_2d
    models/transformers/tora_test models/transformers/tora_transformer_3d models/unets/unet_2d_condition
    models/unets/unet_2d_condition_encoder models/unets/unet_2d_condition_test models/unets/unet_2d_test
    models/unets/unet_3d_blocks models/upscalers/srvgg_net_compact nn/fractional_max_pool nn/max_unpool
    ops/attention/attention_cudnn_test ops/attention/attention_device_test ops/conv/conv
    ops/embedding_bag/embedding_bag ops/fuse/fuse_cuda ops/fuse/fuse_registers ops/fused/linear_act/linear_act
    ops/index/index_select ops/index/nonzero ops/interpolate/interpolate ops/pointwise/pointwise_values_test
    ops/random/philox ops/reduce/reduce_values_test ops/reduce/running_test ops/reduce/summaries_test
    ops/rms_norm/rms_norm ops/search/search_native ops/sort/sort_test optim/adam optim/adam8bit
    server/http/http_server.beast tokenizers/clip_tokenizer tokenizers/tokenizer tokenizers/tokenizer_test
    tokenizers/word_trainer train/evaluation/clip_tracker train/evaluation/composition_judge_test
    bindings/data/bind_video bindings/models/bind_models bindings/nn/bind_nn_module bindings/optim/bind_schedule)

macro(sf_join source unit)   # of sf_unity: its `units`, and the text of each
  cmake_path(SET included ${source})
  cmake_path(RELATIVE_PATH included BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  list(APPEND units ${unit})
  string(MD5 unit_key "${unit}")
  string(APPEND text_${unit_key} "#include \"${included}\"\n")
endmacro()

function(sf_unity target)
  if(NOT SF_UNITY)
    return()
  endif()
  get_target_property(all ${target} SOURCES)
  list(JOIN sf_apart "|" apart)
  set(sources "")
  set(alone_sources "")
  set(apart_sources "")
  foreach(source ${all})
    set(own "")
    foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES)
      get_source_file_property(value ${source} ${property})
      if(value)
        set(own ${value})
      endif()
    endforeach()
    string(FIND "${source}" "${PROJECT_BINARY_DIR}/" generated)
    if(own OR generated EQUAL 0 OR NOT source MATCHES "\\.cpp$")
      list(APPEND alone_sources ${source})
    elseif(source MATCHES "/(${apart})\\.cpp$")
      list(APPEND apart_sources ${source})
    else()
      list(APPEND sources ${source})
    endif()
  endforeach()
  list(SORT sources)
  set(units "")
  set(folders "")
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    string(MD5 key "${folder}")
    list(APPEND folders "${folder}")
    list(APPEND files_${key} "${source}")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    string(MD5 key "${folder}")
    list(LENGTH files_${key} count)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE name)
    if(count LESS 4)
      foreach(letters a-d e-l m-r s-z)
        string(REGEX REPLACE "/[${letters}][^/]*$" "/${letters}" name "${name}")
      endforeach()
    endif()
    string(MAKE_C_IDENTIFIER "${name}" name)
    math(EXPR parts "(${count} + 5) / 12")   # of about a dozen
    if(parts EQUAL 0)
      set(parts 1)
    endif()
    set(index 0)
    foreach(source ${files_${key}})
      math(EXPR part "${index} * ${parts} / ${count}")
      math(EXPR index "${index} + 1")
      sf_join(${source} ${PROJECT_BINARY_DIR}/unity/${target}/${name}_${part}.cpp)
    endforeach()
  endforeach()
  list(SORT apart_sources)
  list(LENGTH apart_sources count)
  math(EXPR several "(${count} + 5) / 6")
  set(last "")
  set(neighbours 0)
  foreach(source ${apart_sources})   # no fewer units than one folder has files: a build of some folders has few
    cmake_path(GET source PARENT_PATH folder)
    if(NOT folder STREQUAL last)
      set(neighbours 0)
    endif()
    set(last "${folder}")
    math(EXPR neighbours "${neighbours} + 1")
    if(neighbours GREATER several)
      set(several ${neighbours})
    endif()
  endforeach()
  set(index 0)
  foreach(source ${apart_sources})   # neighbours into different ones
    math(EXPR part "${index} % ${several}")
    math(EXPR index "${index} + 1")
    sf_join(${source} ${PROJECT_BINARY_DIR}/unity/${target}/apart_${part}.cpp)
  endforeach()
  list(REMOVE_DUPLICATES units)
  foreach(unit ${units})
    string(MD5 key "${unit}")
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text_${key}}" @ONLY)   # written where it differs
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${alone_sources};${units}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")   # warnings that GCC gives for included files alone
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-dangling-else -Wno-restrict)
  endif()
endfunction()
