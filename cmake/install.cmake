# cmake --install: the library, its headers, the program and scaffoldingConfig.cmake, so that find_package(scaffolding)
# works from another project. The component "python" (python/CMakeLists.txt) fills a wheel and is not part of it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(TARGET scaffolding_program AND NOT SKBUILD)
  file(RELATIVE_PATH sf_library_from_program /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(scaffolding_program PROPERTIES INSTALL_RPATH "$ORIGIN/${sf_library_from_program}")
endif()

install(TARGETS scaffolding EXPORT scaffoldingTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
        NAMELINK_COMPONENT development)
# The public headers are those that these reach; kernel argument structs and the harness stay here.
set(sf_headers "")
file(STRINGS cmake/public_headers.txt sf_reached)
while(sf_reached)
  list(POP_FRONT sf_reached header)
  if(NOT header IN_LIST sf_headers)
    list(APPEND sf_headers ${header})
    file(STRINGS ${header} lines REGEX "^#include \"scaffolding/")
    list(TRANSFORM lines REPLACE "^#include \"([^\"]+)\".*" "\\1")
    list(APPEND sf_reached ${lines})
  endif()
endwhile()
foreach(header ${sf_headers})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder} COMPONENT development)
endforeach()
install(EXPORT scaffoldingTargets NAMESPACE scaffolding::
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/scaffolding COMPONENT development)
include(cmake/static.cmake)
configure_package_config_file(cmake/scaffoldingConfig.cmake.in ${PROJECT_BINARY_DIR}/scaffoldingConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/scaffolding)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/scaffoldingConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/scaffoldingConfig.cmake ${PROJECT_BINARY_DIR}/scaffoldingConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/scaffolding COMPONENT development)
# For builds without CMake; it may be moved, as the rest.
file(RELATIVE_PATH SF_PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/scaffolding.pc.in ${PROJECT_BINARY_DIR}/scaffolding.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/scaffolding.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
if(TARGET scaffolding_cuda)
  # Where the core library looks for it.
  install(TARGETS scaffolding_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
endif()
if(TARGET scaffolding_video)
  install(TARGETS scaffolding_video LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT video)
endif()
foreach(engine gloo mpi nccl postgres)
  if(TARGET scaffolding_${engine})
    install(TARGETS scaffolding_${engine} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${engine})
  endif()
endforeach()
if(TARGET scaffolding_program)
  install(TARGETS scaffolding_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
endif()
if(TARGET scaffolding_server AND NOT SKBUILD)
  install(FILES cmake/scaffolding.service cmake/scaffolding.nginx.conf cmake/scaffolding.Caddyfile
          cmake/scaffolding.haproxy.cfg
          DESTINATION ${CMAKE_INSTALL_DATADIR}/scaffolding COMPONENT runtime)
endif()
# The models that come with the program: io/hub/shipped_models.cpp looks for them beside the library,
# in a build folder too.
install(DIRECTORY models/emoji-128 models/emoji-video
        DESTINATION ${CMAKE_INSTALL_DATADIR}/scaffolding/models COMPONENT runtime)
# Of what is compiled in and is not ours.
install(FILES scaffolding/tokenizers/clip/LICENSE
        DESTINATION ${CMAKE_INSTALL_DATADIR}/scaffolding/licenses/clip COMPONENT runtime)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/scaffolding)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/models ${PROJECT_BINARY_DIR}/share/scaffolding/models SYMBOLIC)
