# CPack's .deb and tarball: what `cmake --install` installs. ./package builds it and calls CPack.
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_VENDOR "The Millrace developers")
set(CPACK_PACKAGE_CONTACT "The Millrace developers <developers@millrace.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Distributed TensorFlow, rebuilt: library, headers and launcher")
set(CPACK_PACKAGE_DESCRIPTION "A dataflow runtime for training neural networks, in one process or on a cluster: TensorFlow's graphs, ops, file formats and
protocol with a C++ front end. This package has the shared library, the headers for find_package(Millrace), and the
command millrace, which serves, launches and inspects clusters. It needs a processor with AVX2 (x86-64-v3).")
set(CPACK_PACKAGE_VERSION ${MILLRACE_FULL_VERSION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_FILE_NAME millrace-${MILLRACE_FULL_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_INCLUDE_TOPLEVEL_DIRECTORY ON)

# A candidate and a nightly come before the release, a hotfix after it.
string(REGEX REPLACE "-(rc|nightly|dev)" "~\\1" debian_version ${MILLRACE_FULL_VERSION})
string(REPLACE "-hotfix" "+hotfix" debian_version ${debian_version})
set(CPACK_DEBIAN_PACKAGE_VERSION ${debian_version})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The libraries by what the binaries link (dpkg-shlibdeps); what a program that includes the headers needs comes along
# unless refused. The Python of --python is the user's own.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS libopenblas0-serial)  # of the OpenBLAS that there are, the one whose results do not depend on threads
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/millrace)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++, cmake, libabsl-dev, libprotobuf-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openssh-client, python3-numpy")
# All but libmillrace_cuda.so, whether or not this build has it.
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};${PROJECT_NAME};Unspecified;/")
include(CPack)
