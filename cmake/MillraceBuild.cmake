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

# -O2 is as fast as -O3 outside of the kernels' loops, and quicker to compile.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# The rooms that a step's time is spent in: loops over elements, and what runs between two kernels, are worth all that the
# compiler can do. -O2 with vectorization and unswitching compiles a sixth faster, but layer norm is then 17 % slower, an MLP's
# step 5 %, and ClipByValue four times. Integers wrap. An output may lie in the memory of an input of another type of the same
# size.
set(MILLRACE_HOT_ROOMS ops executor task collective)
set(MILLRACE_HOT_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:$<$<CONFIG:Release>:-O3>;-fwrapv;-fno-strict-aliasing>")
# What runs a few times in a program's life, or waits for others: half of a compiler's time is optimisation.
set(MILLRACE_COLD_ROOMS proto api train saved_model strategy estimator launch dashboard)
set(MILLRACE_COLD_OPTIONS "$<$<CONFIG:Release>:-O1>")
# Tests run once each; what they test is optimised.
set(MILLRACE_TEST_OPTIONS "$<$<CONFIG:Release>:-O1>")
# Instrumented code takes clang three times as long to compile if it is optimised, GCC half as long again. Under a sanitizer
# only what the simulations spend their time in is worth that: the rooms between base and cluster, and the executor.
set(MILLRACE_UNOPTIMISED "")
# In seconds: until ctest kills a test program, and until a case of one ends it with its name (tests/case_limit.cc).
set(MILLRACE_TEST_TIMEOUT 600)
set(MILLRACE_CASE_LIMIT 120)
if(MILLRACE_SANITIZE)
  set(MILLRACE_TEST_TIMEOUT 1500)
  set(MILLRACE_CASE_LIMIT 360)
  set(MILLRACE_UNOPTIMISED -O0)
  set(MILLRACE_COLD_OPTIONS -O0)
  set(MILLRACE_TEST_OPTIONS -O0)
endif()
# Passes of GCC's back end that take a twentieth of its time. A processor that runs instructions out of order schedules them
# itself, and the passes over trees have already found nearly all common subexpressions. Only the loop between two kernels
# (1,000 scalar adds: 3 %) is better with them.
set(MILLRACE_TIGHT_ROOMS executor task)
set(MILLRACE_QUICK_OPTIONS "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-schedule-insns2;-fno-gcse>")

# Contraction would make a*b+c depend on the compiler's mood; results must not.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-unused-parameter;-Wno-sign-compare;$<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-pragmas>;-ffp-contract=off>")
# Nobody looks at errno or floating-point traps after a sqrt; believing that, it and comparisons vectorise.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno;-fno-trapping-math>")
# GCC collects its garbage less often: a tenth of the time for 100 MB a process.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=524288>")
# GCC sees absl::InlinedVector's unused inline storage as read when it is moved, and where it vectorizes such a move, as
# read beyond the end.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized;-Wno-array-bounds>")
if(MILLRACE_ARCH)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-march=${MILLRACE_ARCH}>)
endif()
if(MILLRACE_SANITIZE)
  add_compile_options(-fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MILLRACE_SANITIZE})
endif()
if(MILLRACE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "MILLRACE_FUZZ needs clang, which brings libFuzzer: use `cmake --preset asan`")
  endif()
  # What libFuzzer watches: branches and comparisons of the folders with a fuzz target, which hold what it tests. Each costs a
  # call at run time, so nothing else has them. (-fsanitize=fuzzer-no-link is the same, but no precompiled header allows it.)
  set(MILLRACE_WATCHED -fsanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Only GCC says it by itself.
  if(MILLRACE_SANITIZE STREQUAL address)
    add_compile_definitions(__SANITIZE_ADDRESS__=1)
  endif()
  # A precompiled header from ccache has other times than this tree's files; their sizes are compared all the same.
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
endif()

find_program(MILLRACE_CCACHE ccache)
if(MILLRACE_CCACHE)
  # By the files that the compiler read (CCACHE_DEPEND), not by the preprocessed text: a precompiled header remembers its
  # files with their comments, so one from before a changed comment no longer stands for them.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1
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
find_library(MILLRACE_JPEG jpeg REQUIRED)
find_library(MILLRACE_GIF gif REQUIRED)
find_library(MILLRACE_GRPC grpc REQUIRED)
find_library(MILLRACE_SSL ssl REQUIRED)
find_library(MILLRACE_OPENBLAS openblas REQUIRED)  # LAPACK; the single-threaded package, so that results do not depend on threads

# What the public headers show, and what is behind them.
set(MILLRACE_PUBLIC_DEPENDENCIES
    absl::status absl::statusor absl::strings absl::str_format absl::flat_hash_map absl::flat_hash_set absl::inlined_vector
    absl::span absl::any_invocable absl::time absl::synchronization absl::variant
    protobuf::libprotobuf Threads::Threads)
set(MILLRACE_PRIVATE_DEPENDENCIES ZLIB::ZLIB Snappy::snappy DNNL::dnnl Eigen3::Eigen OpenMP::OpenMP_CXX isal re2 icuuc png jpeg gif openblas grpc gpr ssl crypto)
set(MILLRACE_DEPENDENCIES ${MILLRACE_PUBLIC_DEPENDENCIES} ${MILLRACE_PRIVATE_DEPENDENCIES})

include(MillraceCuda)

set_property(GLOBAL PROPERTY MILLRACE_ROOMS "")

# Sources per object: compiling is mostly reading headers, so several small files of a folder share one object (a
# "jumbo"). Names in anonymous namespaces must therefore differ within a folder.
option(MILLRACE_JUMBO "Compile several files of a folder as one object" ON)
if(MILLRACE_JUMBO)
  # GCC warns of every name in an anonymous namespace that is not in the file it was called with.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()
# Small ones are compiled again quickly after a change; ./quickstart and ./test, which compile everything, ask for large ones.
set(MILLRACE_JUMBO_BYTES 30000 CACHE STRING "How much source one jumbo object takes at most")

# millrace_watch(FOLDER NAME SOURCES): libFuzzer watches these, if FOLDER has a fuzz target and NAME is no test program.
function(millrace_watch folder name sources)
  file(GLOB targets ${folder}/*_fuzz.cc)
  if(MILLRACE_FUZZ AND targets AND sources AND NOT name MATCHES "_test$")
    set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS ${MILLRACE_WATCHED})
  endif()
endfunction()

# millrace_jumbo(LIST NAME): replaces the .cc files in LIST by files that include several of one folder each.
# The includes are relative to the source tree, so that ccache finds an object whatever the tree's own folder is.
function(millrace_jumbo list name)
  if(NOT MILLRACE_JUMBO)
    foreach(source ${${list}})
      cmake_path(GET source PARENT_PATH folder)
      millrace_watch(${folder} ${name} ${source})
    endforeach()
    return()
  endif()
  set(jumbos ${${list}})
  list(FILTER jumbos EXCLUDE REGEX "\\.cc$")
  set(folders)
  foreach(source ${${list}})
    cmake_path(GET source PARENT_PATH folder)
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE path)
    string(REGEX REPLACE "[^a-z0-9]+" "_" stem "${name}_${path}")
    string(REGEX REPLACE "_$" "" stem ${stem})
    set(number 0)
    set(bytes 0)
    set(text "")
    foreach(source ${${list}})
      cmake_path(GET source PARENT_PATH own)
      if(NOT own STREQUAL folder OR NOT source MATCHES "\\.cc$")
        continue()
      endif()
      file(SIZE ${source} size)
      math(EXPR total "${bytes} + ${size}")
      if(text AND total GREATER MILLRACE_JUMBO_BYTES)
        math(EXPR number "${number} + 1")
        set(text "")
        set(total ${size})
      endif()
      set(bytes ${total})
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
      string(APPEND text "#include \"${path}\"\n")
      set(jumbo ${CMAKE_CURRENT_BINARY_DIR}/jumbo/${stem}_${number}.cc)
      set(text_of_${stem}_${number} "${text}")
      list(APPEND jumbos ${jumbo})
      list(APPEND jumbos_of_${folder} ${jumbo})
    endforeach()
    millrace_watch(${folder} ${name} "${jumbos_of_${folder}}")
  endforeach()
  list(REMOVE_DUPLICATES jumbos)
  foreach(jumbo ${jumbos})
    cmake_path(GET jumbo STEM LAST_ONLY stem)
    if(DEFINED text_of_${stem})
      file(CONFIGURE OUTPUT ${jumbo} CONTENT "${text_of_${stem}}" @ONLY)
    endif()
  endforeach()
  set(${list} ${jumbos} PARENT_SCOPE)
endfunction()

# millrace_compile_room(TARGET ROOM): compiles the target as the room's files are compiled.
function(millrace_compile_room target name)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${target} PUBLIC ${MILLRACE_DEPENDENCIES})
  # Every build with clang checks the lock annotations.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety;-Werror=thread-safety>)
  if(name IN_LIST MILLRACE_HOT_ROOMS)
    target_compile_options(${target} PRIVATE ${MILLRACE_HOT_OPTIONS})
    if(NOT name IN_LIST MILLRACE_TIGHT_ROOMS)
      target_compile_options(${target} PRIVATE ${MILLRACE_UNOPTIMISED})
    endif()
  elseif(name IN_LIST MILLRACE_COLD_ROOMS)
    target_compile_options(${target} PRIVATE ${MILLRACE_COLD_OPTIONS})
  endif()
  if(NOT name IN_LIST MILLRACE_TIGHT_ROOMS)
    target_compile_options(${target} PRIVATE ${MILLRACE_QUICK_OPTIONS})
  endif()
  if(NOT name STREQUAL "proto")
    add_dependencies(${target} millrace_proto_headers)
  endif()
  if(NOT name IN_LIST MILLRACE_TIGHT_ROOMS)
    millrace_precompile(${target} ${name})
  endif()
endfunction()

# millrace_room_objects(LIST NAME): appends the room's objects.
function(millrace_room_objects list name)
  list(APPEND ${list} $<TARGET_OBJECTS:millrace_${name}>)
  if(TARGET millrace_${name}_light)
    list(APPEND ${list} $<TARGET_OBJECTS:millrace_${name}_light>)
  endif()
  set(${list} ${${list}} PARENT_SCOPE)
endfunction()

# millrace_room(NAME [USES room...] [LIBRARIES library...] [SOURCES file...] [SHARDS n] [TESTS_ALONE] [FOR_TESTS folder...]
# [PLAIN folder...] [COLD folder...] [LIGHT file... | ALL_LIGHT]): one folder of the library. Compiles every .cc below it
# except *_test.cc and *_fuzz.cc, and makes one test program of its tests, which ctest runs in SHARDS parts.
# USES are the rooms that it may use, by default all that were added before it, and LIBRARIES what it links beside
# MILLRACE_PUBLIC_DEPENDENCIES; see millrace_layer. With TESTS_ALONE the tests link the room and what it may use instead of the
# whole library, so that after a change they run without a rebuild of the rooms above. FOR_TESTS are folders in it that only
# tests of this and later rooms link. The compiler does less for those of a hot room's folders that are PLAIN (-O2) or COLD
# (-O1). The program `millrace` has the LIGHT files, or the whole room, in itself (tools/CMakeLists.txt): they need nothing but
# Abseil, OpenSSL and each other.
function(millrace_room name)
  cmake_parse_arguments(ARG "TESTS_ALONE;ALL_LIGHT" "SHARDS" "USES;LIBRARIES;SOURCES;FOR_TESTS;PLAIN;COLD;LIGHT" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX ${MILLRACE_CUDA_SOURCES})
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|_main)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(NOT sources AND NOT ARG_SOURCES)
    return()
  endif()
  foreach(folder ${ARG_FOR_TESTS})
    set(support ${sources})
    list(FILTER support INCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${folder}/")
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${folder}/")
    millrace_test_support(${name}_${folder} ${support})
  endforeach()
  set(light ${ARG_LIGHT})
  list(TRANSFORM light PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  if(light)
    list(REMOVE_ITEM sources ${light})
    millrace_jumbo(light ${name}_light)
  endif()
  millrace_jumbo(sources ${name})
  foreach(source ${sources})
    string(REGEX REPLACE "^.*/jumbo/${name}_(.*)_[0-9]+\\.cc$" "\\1" folder ${source})
    string(REGEX REPLACE "^${CMAKE_CURRENT_SOURCE_DIR}/([^/]*)/.*$" "\\1" folder ${folder})
    if(folder IN_LIST ARG_PLAIN)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "$<$<CONFIG:Release>:-O2>")
    elseif(folder IN_LIST ARG_COLD)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")
    endif()
  endforeach()
  add_library(millrace_${name} OBJECT ${sources} ${ARG_SOURCES})
  millrace_compile_room(millrace_${name} ${name})
  if(light)
    add_library(millrace_${name}_light OBJECT ${light})
    millrace_compile_room(millrace_${name}_light ${name})
    set_property(GLOBAL APPEND PROPERTY MILLRACE_LIGHT millrace_${name}_light)
  elseif(ARG_ALL_LIGHT)
    set_property(GLOBAL APPEND PROPERTY MILLRACE_LIGHT millrace_${name})
  endif()
  if(NOT DEFINED ARG_USES AND NOT name STREQUAL "base")
    get_property(ARG_USES GLOBAL PROPERTY MILLRACE_ROOMS)
    list(TRANSFORM ARG_USES REPLACE "^millrace_" "")
  endif()
  set_property(GLOBAL APPEND PROPERTY MILLRACE_ROOMS millrace_${name})
  millrace_layer(${name} "${ARG_USES}" "${ARG_LIBRARIES}")
  if(MILLRACE_TESTS AND tests)
    if(ARG_SHARDS)
      list(PREPEND tests SHARDS ${ARG_SHARDS})
    endif()
    if(ARG_TESTS_ALONE AND TARGET layer_${name})
      list(TRANSFORM ARG_USES PREPEND layer_)
      list(PREPEND tests LIBRARIES layer_${name} ${ARG_USES} SOURCES)
    endif()
    millrace_test(${name}_test ${tests})
  endif()
endfunction()

# millrace_test_support(NAME file...): what tests of several rooms share, as a library of its own that no program gets.
function(millrace_test_support name)
  if(NOT MILLRACE_TESTS)
    return()
  endif()
  set(sources ${ARGN})
  millrace_jumbo(sources ${name})
  add_library(millrace_${name} STATIC ${sources})
  target_link_libraries(millrace_${name} PUBLIC ${MILLRACE_DEPENDENCIES})
  target_include_directories(millrace_${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_compile_options(millrace_${name} PRIVATE ${MILLRACE_QUICK_OPTIONS})
  millrace_precompile(millrace_${name} graph)
  add_dependencies(millrace_${name} millrace_proto_headers)
  set_property(GLOBAL APPEND PROPERTY MILLRACE_TEST_SUPPORT millrace_${name})
endfunction()

# millrace_layer(NAME USES LIBRARIES): links the room by itself with nothing but what it may use, so that a use of another
# room's symbol fails the build and names it. Nobody runs what it makes. What a header of another room gives inline leaves no
# symbol: tests/layering looks at the headers that the compiler read.
function(millrace_layer name uses libraries)
  foreach(used ${uses})
    if(NOT TARGET millrace_${used})
      message(FATAL_ERROR "millrace/${name} may not use millrace/${used}, which comes after it in millrace/CMakeLists.txt")
    endif()
  endforeach()
  list(JOIN uses " " text)
  set_property(GLOBAL APPEND_STRING PROPERTY MILLRACE_LAYERS "${name}: ${text}\n")
  if(NOT MILLRACE_TESTS OR MILLRACE_SANITIZE)
    return()
  endif()
  set(objects)
  millrace_room_objects(objects ${name})
  add_library(layer_${name} SHARED ${objects})
  set_target_properties(layer_${name} PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/layers)
  target_link_options(layer_${name} PRIVATE -Wl,-z,defs)
  list(TRANSFORM uses PREPEND layer_)
  target_link_libraries(layer_${name} PRIVATE ${uses} ${MILLRACE_PUBLIC_DEPENDENCIES} ${libraries})
endfunction()

# millrace_test(NAME [SHARDS n] [LIBRARIES target... SOURCES] file...): a GoogleTest program against the whole library, or
# against those parts of it. ctest runs a long one as several shards, so that they use all cores.
function(millrace_test name)
  cmake_parse_arguments(ARG "" "SHARDS" "LIBRARIES;SOURCES" ${ARGN})
  find_package(GTest REQUIRED)
  if(NOT ARG_LIBRARIES)
    set(ARG_LIBRARIES millrace)
  endif()
  get_property(support GLOBAL PROPERTY MILLRACE_TEST_SUPPORT)
  list(PREPEND ARG_LIBRARIES ${support})
  set(sources)
  foreach(source ${ARG_UNPARSED_ARGUMENTS} ${ARG_SOURCES})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND sources ${source})
  endforeach()
  millrace_jumbo(sources ${name})
  if(NOT TARGET millrace_case_limit)
    add_library(millrace_case_limit OBJECT ${PROJECT_SOURCE_DIR}/tests/case_limit.cc)
    target_link_libraries(millrace_case_limit PRIVATE GTest::gtest)
    target_compile_definitions(millrace_case_limit PRIVATE MILLRACE_CASE_LIMIT=${MILLRACE_CASE_LIMIT})
  endif()
  add_executable(${name} ${sources} $<TARGET_OBJECTS:millrace_case_limit>)
  millrace_precompile(${name} test)
  target_compile_options(${name} PRIVATE ${MILLRACE_TEST_OPTIONS} ${MILLRACE_QUICK_OPTIONS})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main ${MILLRACE_DEPENDENCIES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_compile_definitions(${name} PRIVATE MILLRACE_TESTDATA="${PROJECT_SOURCE_DIR}/testdata")
  set(results ${PROJECT_BINARY_DIR}/results)
  if(NOT ARG_SHARDS)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1 --gtest_output=xml:${results}/${name}.xml)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${MILLRACE_TEST_TIMEOUT})
    return()
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(test ${name}_${shard})
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND ${name} --gtest_brief=1 --gtest_output=xml:${results}/${test}.xml)
    set_tests_properties(${test} PROPERTIES TIMEOUT ${MILLRACE_TEST_TIMEOUT} COST 100
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# millrace_program(NAME [CORE] [LIBRARIES library...] file...): a program against the whole library, or without the rooms of
# MILLRACE_UPPER_ROOMS. There is no precompiled header
# for programs: one of CLI11 and millrace.h takes 17 s and saves at most three in each.
function(millrace_program name)
  cmake_parse_arguments(ARG "CORE" "" "LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE $<IF:$<BOOL:${ARG_CORE}>,millrace_core,millrace> ${ARG_LIBRARIES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_compile_options(${name} PRIVATE ${MILLRACE_COLD_OPTIONS})  # its time is spent in the library
endfunction()

# Precompiled headers: what nearly every file of a kind includes. GCC compiles what includes one with the optimisation
# that the header was compiled with, whatever the command line says, so each has exactly its users' options. The lower rooms have one of the standard library and
# Abseil, the generated messages one of protobuf's, the rooms that see graphs and kernels one with those, and the tests one
# with GoogleTest. Without a target it only makes the header's own.
function(millrace_precompile target room)
  set(headers
    <algorithm> <atomic> <cstdint> <cstring> <functional> <map> <memory> <string> <type_traits> <unordered_map> <utility> <vector>
    <absl/container/flat_hash_map.h> <absl/container/inlined_vector.h> <absl/functional/any_invocable.h> <absl/status/status.h>
    <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/string_view.h> <absl/types/span.h>)
  set(pch millrace_pch)
  if(room STREQUAL proto)
    set(pch millrace_proto_pch)
    set(headers <limits> <string> <google/protobuf/extension_set.h> <google/protobuf/generated_message_reflection.h>
        <google/protobuf/map_entry.h> <google/protobuf/map_field_inl.h> <google/protobuf/message.h>
        <google/protobuf/reflection_ops.h> <google/protobuf/wire_format.h>)
  elseif(NOT room MATCHES "^(base|tensor|io|device|test)$")
    set(pch millrace_graph_pch)
    list(APPEND headers <millrace/graph/gradient.h> <millrace/graph/shape_inference.h> <millrace/runtime/kernel_registry.h>)
    if(room IN_LIST MILLRACE_HOT_ROOMS)
      set(pch millrace_hot_pch)
    elseif(room IN_LIST MILLRACE_COLD_ROOMS AND MILLRACE_UNOPTIMISED)
      set(pch millrace_cold_pch)
    endif()
  elseif(room STREQUAL test)
    set(pch millrace_test_pch)
    list(APPEND headers <gmock/gmock.h> <gtest/gtest.h> <millrace/graph/graph.h>)
  endif()
  if(NOT TARGET ${pch})
    file(WRITE ${PROJECT_BINARY_DIR}/pch.cc "")
    add_library(${pch} OBJECT ${PROJECT_BINARY_DIR}/pch.cc)
    target_link_libraries(${pch} PUBLIC ${MILLRACE_DEPENDENCIES})
    target_include_directories(${pch} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
    add_dependencies(${pch} millrace_proto_headers)
    target_precompile_headers(${pch} PRIVATE ${headers})
    if(room STREQUAL test)
      # As CMake compiles programs.
      target_compile_options(${pch} PRIVATE -fPIE)
      set_target_properties(${pch} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    endif()
    target_compile_options(${pch} PRIVATE ${MILLRACE_QUICK_OPTIONS})
    if(room IN_LIST MILLRACE_HOT_ROOMS)
      target_compile_options(${pch} PRIVATE ${MILLRACE_HOT_OPTIONS} ${MILLRACE_UNOPTIMISED})
    elseif(room IN_LIST MILLRACE_COLD_ROOMS AND MILLRACE_UNOPTIMISED)
      target_compile_options(${pch} PRIVATE ${MILLRACE_COLD_OPTIONS})  # another level than the header's is an error
    elseif(room STREQUAL test)
      target_compile_options(${pch} PRIVATE ${MILLRACE_TEST_OPTIONS})
      target_link_libraries(${pch} PUBLIC GTest::gmock)
    endif()
  endif()
  if(target)
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
endfunction()
