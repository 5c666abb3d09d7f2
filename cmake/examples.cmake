# The C++ programs in examples/, one file each; tests/test_examples.py runs them.
file(GLOB sf_examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cpp)
foreach(source ${sf_examples})
  cmake_path(GET source STEM example)
  add_executable(${example} ${source})
  set_target_properties(${example} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
  target_compile_options(${example} PRIVATE ${SF_WARNINGS})
  target_link_libraries(${example} PRIVATE scaffolding)
endforeach()
