# `cpack -G DEB` in a build folder (`make deb`): one Debian package with the program, the library, its headers and the
# models, and scaffolding-video with the library that needs libav, whose hundred megabytes of codecs nobody else wants.
# The libraries that they need are asked of the binaries (dpkg-shlibdeps); libcurl is loaded at run time, for downloads
# alone.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME scaffolding)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The authors of Scaffolding <scaffolding@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "deep learning for diffusion models: program, library and a small model")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime development)
if(TARGET scaffolding_video)
  list(APPEND CPACK_COMPONENTS_ALL video)
endif()
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_COMPONENT_RUNTIME_GROUP base)
set(CPACK_COMPONENT_DEVELOPMENT_GROUP base)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})   # libscaffolding.so, of the other package
file(WRITE ${PROJECT_BINARY_DIR}/package/triggers "activate-noawait ldconfig\n")

set(CPACK_DEBIAN_BASE_PACKAGE_NAME scaffolding)
string(CONCAT CPACK_DEBIAN_BASE_DESCRIPTION
       "Scaffolding trains and runs diffusion models without PyTorch. The package has the program\n"
       "scaffolding, the C++ library with its headers, and a model that draws icons from words.")
set(CPACK_DEBIAN_BASE_PACKAGE_RECOMMENDS "libcurl4, ca-certificates")
set(CPACK_DEBIAN_BASE_PACKAGE_SUGGESTS scaffolding-video)
set(CPACK_DEBIAN_BASE_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/package/triggers)

set(CPACK_DEBIAN_VIDEO_PACKAGE_NAME scaffolding-video)
string(CONCAT CPACK_DEBIAN_VIDEO_DESCRIPTION
       "The part that reads and writes mp4 and webm files: a library that Scaffolding opens when such\n"
       "a file is first asked for.")
set(CPACK_DEBIAN_VIDEO_PACKAGE_DEPENDS "scaffolding (= ${PROJECT_VERSION})")
include(CPack)
