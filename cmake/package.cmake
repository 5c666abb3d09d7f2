# `cpack -G DEB` in a build folder (`make deb`): one Debian package with the program, the library, its headers and the
# model. The libraries that it needs are asked of the binaries (dpkg-shlibdeps); libcurl is loaded at run time, for
# downloads alone.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME scaffolding)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The authors of Scaffolding <scaffolding@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "deep learning for diffusion models: program, library and a small model")
string(CONCAT CPACK_DEBIAN_PACKAGE_DESCRIPTION
       "Scaffolding trains and runs diffusion models without PyTorch. The package has the program\n"
       " scaffolding, the C++ library with its headers, and a model that draws icons from words.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libcurl4, ca-certificates")
file(WRITE ${PROJECT_BINARY_DIR}/package/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/package/triggers)
include(CPack)
