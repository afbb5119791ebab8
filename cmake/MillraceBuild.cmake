# Compiler settings and the two functions that every folder uses.
include(GNUInstallDirs)
include(CTest)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Contraction would make a*b+c depend on the compiler's mood; results must not.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-unused-parameter;-Wno-sign-compare;$<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-pragmas>;-ffp-contract=off>")
# Nobody looks at errno or floating-point traps after a sqrt; believing that, it and comparisons vectorise.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno;-fno-trapping-math>")
# GCC sees absl::InlinedVector's unused inline storage as read when it is moved.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
if(MILLRACE_ARCH)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-march=${MILLRACE_ARCH}>)
endif()
if(MILLRACE_SANITIZE)
  add_compile_options(-fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MILLRACE_SANITIZE})
endif()

if(MILLRACE_THREAD_SAFETY)
  # Lock annotations are checked without generating code, so that nothing links in this tree.
  add_compile_options(-fsyntax-only -Wthread-safety -Werror=thread-safety)
endif()

find_program(MILLRACE_CCACHE ccache)
if(MILLRACE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${MILLRACE_CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()
find_program(MILLRACE_MOLD mold)
if(MILLRACE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Snappy REQUIRED)
find_package(dnnl REQUIRED)
find_package(Eigen3 REQUIRED)
find_package(OpenMP REQUIRED)
find_library(MILLRACE_ISAL isal REQUIRED)  # ISA-L has no CMake package
find_library(MILLRACE_RE2 re2 REQUIRED)    # nor has Debian's RE2
find_library(MILLRACE_ICU icuuc REQUIRED)
find_library(MILLRACE_PNG png REQUIRED)
find_library(MILLRACE_GRPCPP grpc++ REQUIRED)

set(MILLRACE_DEPENDENCIES
    absl::status absl::statusor absl::strings absl::str_format absl::flat_hash_map absl::flat_hash_set absl::inlined_vector
    absl::span absl::any_invocable absl::time absl::synchronization absl::variant
    protobuf::libprotobuf Threads::Threads ZLIB::ZLIB Snappy::snappy DNNL::dnnl Eigen3::Eigen OpenMP::OpenMP_CXX isal re2 icuuc png grpc++ grpc gpr)

if(MILLRACE_CUDA)
  include(MillraceCuda)
endif()

set_property(GLOBAL PROPERTY MILLRACE_ROOMS "")

# What of a room's sources belongs to this build: with CUDA its files (.cu, *_cuda.cc, cuda/), without it the stubs (no_cuda/).
function(millrace_select_cuda list)
  set(selected)
  foreach(source ${${list}})
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
    if(path MATCHES "/no_cuda/")
      set(wanted NOT MILLRACE_CUDA)
    elseif(path MATCHES "/cuda/|_cuda(_test)?\\.cc$|\\.cu$")
      set(wanted MILLRACE_CUDA)
      set_source_files_properties(${source} PROPERTIES INCLUDE_DIRECTORIES "${CUDAToolkit_INCLUDE_DIRS}")
    else()
      set(wanted TRUE)
    endif()
    if(${wanted})
      list(APPEND selected ${source})
    endif()
  endforeach()
  set(${list} ${selected} PARENT_SCOPE)
endfunction()

# millrace_room(NAME [SOURCES file...] [EXCLUDE regex]): one folder of the library. Compiles every .cc below
# it except *_test.cc and *_fuzz.cc, and makes one test program of its tests.
function(millrace_room name)
  cmake_parse_arguments(ARG "" "EXCLUDE" "SOURCES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  millrace_select_cuda(sources)
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX ${ARG_EXCLUDE})
  endif()
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|_main)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(NOT sources AND NOT ARG_SOURCES)
    return()
  endif()
  add_library(millrace_${name} OBJECT ${sources} ${ARG_SOURCES})
  target_include_directories(millrace_${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(millrace_${name} PUBLIC ${MILLRACE_DEPENDENCIES})
  if(NOT name STREQUAL "proto")
    add_dependencies(millrace_${name} millrace_proto)
    millrace_precompile(millrace_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY MILLRACE_ROOMS millrace_${name})
  if(MILLRACE_TESTS AND tests)
    millrace_test(${name}_test ${tests})
  endif()
endfunction()

# millrace_test(NAME file...): a GoogleTest program against the whole library.
function(millrace_test name)
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE millrace GTest::gmock GTest::gtest_main ${MILLRACE_CUDA_DEPENDENCIES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_compile_definitions(${name} PRIVATE MILLRACE_TESTDATA="${PROJECT_SOURCE_DIR}/testdata")
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endfunction()

# One precompiled header for all rooms: what nearly every file includes.
function(millrace_precompile target)
  if(NOT TARGET millrace_pch)
    file(WRITE ${PROJECT_BINARY_DIR}/pch.cc "")
    add_library(millrace_pch OBJECT ${PROJECT_BINARY_DIR}/pch.cc)
    target_link_libraries(millrace_pch PUBLIC ${MILLRACE_DEPENDENCIES})
    target_include_directories(millrace_pch PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
    target_precompile_headers(millrace_pch PRIVATE
      <algorithm> <atomic> <cstdint> <cstring> <functional> <map> <memory> <string> <type_traits> <unordered_map> <utility> <vector>
      <absl/container/flat_hash_map.h> <absl/container/inlined_vector.h> <absl/functional/any_invocable.h> <absl/status/status.h>
      <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/string_view.h> <absl/types/span.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM millrace_pch)
endfunction()
