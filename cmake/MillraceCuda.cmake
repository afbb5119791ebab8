# libmillrace_cuda.so: the device, kernels and tests for NVIDIA's GPUs, beside libmillrace.so, which opens it at run time.
# Nothing here needs a GPU, and nothing but this library and its tests is compiled otherwise because of it.

# What belongs to it, anywhere in millrace/.
set(MILLRACE_CUDA_SOURCES "^${PROJECT_SOURCE_DIR}/millrace/(.*/)?cuda/|_cuda(_test)?\\.cc$|\\.cu$")

set(MILLRACE_WITH_CUDA FALSE)
if(NOT MILLRACE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "MILLRACE_CUDA is '${MILLRACE_CUDA}': use AUTO, ON or OFF")
elseif(MILLRACE_CUDA STREQUAL "OFF")
  return()
elseif(MILLRACE_SANITIZE)
  if(MILLRACE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MILLRACE_CUDA=ON and MILLRACE_SANITIZE=${MILLRACE_SANITIZE} exclude each other: CUDA does not run under sanitizers")
  endif()
  return()
endif()

# The compiler: the given one, that of `deps/install --cuda`, or this machine's.
find_program(CMAKE_CUDA_COMPILER nvcc PATHS ${PROJECT_SOURCE_DIR}/.cuda/toolkit/bin NO_DEFAULT_PATH)
find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(MILLRACE_NVCC "no nvcc")
set(MILLRACE_NVCC_VERSION 0)
if(CMAKE_CUDA_COMPILER)
  set(MILLRACE_NVCC "${CMAKE_CUDA_COMPILER}, which does not run")
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE MILLRACE_NVCC_SAYS ERROR_QUIET)
  if(MILLRACE_NVCC_SAYS MATCHES "release ([0-9.]+)")
    set(MILLRACE_NVCC_VERSION ${CMAKE_MATCH_1})
    set(MILLRACE_NVCC "${CMAKE_CUDA_COMPILER} of CUDA ${MILLRACE_NVCC_VERSION}")
  endif()
endif()
if(NOT MILLRACE_NVCC_VERSION VERSION_GREATER_EQUAL 13.0)
  if(MILLRACE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MILLRACE_CUDA=ON needs CUDA 13's nvcc, and there is ${MILLRACE_NVCC}: "
            "`deps/install --cuda` installs it in .cuda/")
  endif()
  message(STATUS "libmillrace_cuda.so is not built: it needs CUDA 13's nvcc, and there is ${MILLRACE_NVCC}")
  # Looked for again the next time.
  unset(CMAKE_CUDA_COMPILER CACHE)
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "Compute capabilities to build kernels for")
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # linked below, and not everything that CMake means by "Static"
enable_language(CUDA)
# After the compiler is known. What nvcc sees includes no other Millrace headers, so it need not know C++20.
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
# That of the compiler, whatever else lies in the system's folders.
unset(MILLRACE_CUDART CACHE)
find_library(MILLRACE_CUDART cudart_static PATHS ${CMAKE_CUDA_COMPILER_TOOLKIT_LIBRARY_ROOT} PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib
             NO_DEFAULT_PATH REQUIRED)
cmake_path(GET MILLRACE_CUDART PARENT_PATH MILLRACE_CUDA_FOLDER)
if(MILLRACE_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${MILLRACE_CCACHE})
endif()
set(MILLRACE_WITH_CUDA TRUE)

# As on the CPU: a*b+c is two roundings.
set(MILLRACE_CUDA_OPTIONS --fmad=false)

# The library and its test program, when the rooms are there.
function(millrace_add_cuda_library)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/millrace/*.cc ${PROJECT_SOURCE_DIR}/millrace/*.cu)
  list(FILTER sources INCLUDE REGEX ${MILLRACE_CUDA_SOURCES})
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  configure_file(${PROJECT_SOURCE_DIR}/millrace/device/cuda/built_for.h.in ${PROJECT_BINARY_DIR}/millrace/device/cuda/built_for.h @ONLY)

  # The text of what NVRTC compiles with every program.
  set(ops ${PROJECT_SOURCE_DIR}/millrace/ops)
  foreach(header PRELUDE=kernels/cuda/prelude.h FUNCTORS=kernels/functors.h REDUCTIONS=kernels/cuda/reductions.h ROWS=nn/cuda/rows.h
          OPTIMIZER_STEPS=training/optimizer_steps.h INDEXED_ROWS=kernels/cuda/indexed_rows.h LINES=kernels/cuda/lines.h
          PHILOX=../base/philox.h DISTRIBUTIONS=random/distributions.h
          COLUMNS=nn/cuda/columns.h WINDOWS=nn/cuda/windows.h CONVOLUTIONS=nn/cuda/convolutions.h POOLS=nn/cuda/pools.h
          BATCH_NORMS=nn/cuda/batch_norms.h)
    string(REGEX MATCH "^(.*)=(.*)$" header ${header})
    file(READ ${ops}/${CMAKE_MATCH_2} MILLRACE_${CMAKE_MATCH_1})
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ops}/${CMAKE_MATCH_2})
  endforeach()
  configure_file(${ops}/kernels/cuda/program_headers.cc.in ${PROJECT_BINARY_DIR}/program_headers.cc @ONLY)

  millrace_jumbo(sources cuda)
  list(APPEND sources ${PROJECT_BINARY_DIR}/program_headers.cc)
  add_library(millrace_cuda SHARED ${sources})
  millrace_precompile(millrace_cuda graph)
  target_compile_options(millrace_cuda PRIVATE ${MILLRACE_QUICK_OPTIONS} $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>  # as the precompiled header
                         $<$<COMPILE_LANGUAGE:CUDA>:${MILLRACE_CUDA_OPTIONS}>)
  target_include_directories(millrace_cuda SYSTEM PUBLIC ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  # CUDA's run time is inside and not seen from outside; it opens the driver when it is called. All else of NVIDIA's is
  # opened by device/cuda/opened_library.h: in a build tree, also where the compiler is.
  target_link_libraries(millrace_cuda PUBLIC millrace_core PRIVATE ${MILLRACE_CUDART} Threads::Threads rt ${CMAKE_DL_LIBS})
  target_link_options(millrace_cuda PRIVATE -Wl,-z,defs -Wl,-Bsymbolic-functions -Wl,--exclude-libs,libcudart_static.a)
  set_target_properties(millrace_cuda PROPERTIES LINKER_LANGUAGE CXX BUILD_RPATH "${MILLRACE_CUDA_FOLDER}" INSTALL_RPATH "$ORIGIN")

  if(MILLRACE_TESTS)
    millrace_test(cuda_test LIBRARIES millrace millrace_cuda SOURCES ${tests})
  endif()
endfunction()
