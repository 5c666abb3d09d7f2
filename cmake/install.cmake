# cmake --install: the library, its headers, the program and scaffoldingConfig.cmake, so that find_package(scaffolding)
# works from another project. The component "python" (python/CMakeLists.txt) fills a wheel and is not part of it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS scaffolding EXPORT scaffoldingTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
        NAMELINK_COMPONENT development)
# Kernel argument structs and *_internal.h are between an op and its kernels; the harness belongs to the tests.
install(DIRECTORY scaffolding/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/scaffolding COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.def"
        REGEX "/ops/.*kernel\\.h$" EXCLUDE PATTERN "*_internal.h" EXCLUDE REGEX "/ops/op_[a-z]+\\.h$" EXCLUDE)
install(EXPORT scaffoldingTargets NAMESPACE scaffolding:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/scaffolding COMPONENT development)
configure_package_config_file(cmake/scaffoldingConfig.cmake.in ${PROJECT_BINARY_DIR}/scaffoldingConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/scaffolding)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/scaffoldingConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/scaffoldingConfig.cmake ${PROJECT_BINARY_DIR}/scaffoldingConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/scaffolding COMPONENT development)
if(TARGET scaffolding_program)
  install(TARGETS scaffolding_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
endif()
