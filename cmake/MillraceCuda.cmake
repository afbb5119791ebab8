# The CUDA compiler and libraries, for the preset `cuda`. Nothing here needs a GPU: a program built so runs without one and
# finds no GPU devices.
if(NOT DEFINED CMAKE_CUDA_COMPILER)
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin REQUIRED)
endif()
set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "Compute capabilities to build kernels for")
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
# After the compiler is known. What nvcc sees includes no other Millrace headers, so it need not know C++20.
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)

# As on the CPU: a*b+c is two roundings.
set(MILLRACE_CUDA_OPTIONS --fmad=false)
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${MILLRACE_CUDA_OPTIONS}>")
# Linked to the library and its tests; only the sources that use CUDA see its headers.
set(MILLRACE_CUDA_DEPENDENCIES CUDA::cudart CUDA::cublas)
