// Runs the programs that NVRTC compiles for GPUs on the host: the same text, compiled as C++, with a fiber for each
// thread of a block. For tests only.
#pragma once

#include <dlfcn.h>
#include <ucontext.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "millrace/base/file.h"

namespace millrace {

// The kernels of one program. One test at a time.
class HostProgram {
 public:
  // `kernels` are the names of those that are launched.
  HostProgram(const std::string& text, const std::vector<std::string>& kernels) {
    std::ofstream source(dir_.File("program.cc"));
    source << kBefore << text << kAfter;
    for (const std::string& kernel : kernels) {
      absl::StrAppend(&calls_, "extern \"C\" void call_", kernel,
                      "(void** a) { Call(&millrace::", Qualified(text, kernel), ", a); }\n");
    }
    source << calls_;
    source.close();
    const std::string command =
        absl::StrCat("c++ -std=c++20 -O1 -w -shared -fPIC -ffp-contract=off -o ", dir_.File("program.so"), " ",
                     dir_.File("program.cc"), " > ", dir_.File("log"), " 2>&1");
    if (std::system(command.c_str()) != 0) {
      std::stringstream log;
      log << std::ifstream(dir_.File("log")).rdbuf();
      ADD_FAILURE() << log.str();
      return;
    }
    library_ = dlopen(dir_.File("program.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) ADD_FAILURE() << dlerror();
  }
  ~HostProgram() {
    if (library_ != nullptr) dlclose(library_);
  }

  bool ok() const { return library_ != nullptr; }

  // As cudaLaunchKernel does.
  void Launch(const std::string& kernel, std::vector<unsigned> blocks, std::vector<unsigned> threads,
              std::vector<void*> arguments) {
    blocks.resize(2, 1);
    threads.resize(2, 1);
    struct Index {
      unsigned x, y, z;
    };
    *Symbol<Index>("gridDim") = {blocks[0], blocks[1], 1};
    *Symbol<Index>("blockDim") = {threads[0], threads[1], 1};
    *Symbol<void (*)()>("synchronize") = [] { swapcontext(&fibers()[current()].context, &scheduler()); };
    call_ = reinterpret_cast<void (*)(void**)>(dlsym(library_, absl::StrCat("call_", kernel).c_str()));
    arguments_ = arguments.data();
    ASSERT_NE(call_, nullptr) << kernel;
    fibers() = std::vector<Fiber>(threads[0] * threads[1]);
    for (unsigned y = 0; y < blocks[1]; ++y) {
      for (unsigned x = 0; x < blocks[0]; ++x) {
        *Symbol<Index>("blockIdx") = {x, y, 0};
        for (Fiber& fiber : fibers()) fiber.Start();
        for (bool any = true; any;) {
          any = false;
          for (size_t i = 0; i < fibers().size(); ++i) {
            if (fibers()[i].done) continue;
            any = true;
            current() = i;
            *Symbol<Index>("threadIdx") = {static_cast<unsigned>(i % threads[0]), static_cast<unsigned>(i / threads[0]),
                                           0};
            swapcontext(&scheduler(), &fibers()[i].context);
          }
        }
      }
    }
  }

 private:
  struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(64 << 10);
    bool done = false;
    void Start() {
      done = false;
      getcontext(&context);
      context.uc_stack.ss_sp = stack.data();
      context.uc_stack.ss_size = stack.size();
      context.uc_link = &scheduler();
      makecontext(
          &context,
          [] {
            call_(arguments_);
            fibers()[current()].done = true;
          },
          0);
    }
  };
  static ucontext_t& scheduler() {
    static ucontext_t context;
    return context;
  }
  static std::vector<Fiber>& fibers() {
    static std::vector<Fiber> all;
    return all;
  }
  static size_t& current() {
    static size_t index = 0;
    return index;
  }
  template <typename T>
  T* Symbol(const char* name) {
    return static_cast<T*>(dlsym(library_, name));
  }
  // Kernels of reductions are in a namespace of their own.
  static std::string Qualified(const std::string& text, const std::string& kernel) {
    return text.find("namespace reduction ") != std::string::npos ||
                   text.find("namespace reduction{") != std::string::npos
               ? absl::StrCat("reduction::", kernel)
               : kernel;
  }

  static constexpr char kBefore[] = R"text(
#define MILLRACE_ON_HOST
#define __device__
#define __global__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
struct Index3 { unsigned x, y, z; };
extern "C" {
Index3 threadIdx, blockIdx, blockDim, gridDim;
void (*synchronize)();
}
inline void __syncthreads() { synchronize(); }
#define MR_FUNCTION(name) extern "C" float name##f(float); extern "C" double name(double);
MR_FUNCTION(sqrt) MR_FUNCTION(fabs) MR_FUNCTION(exp) MR_FUNCTION(expm1) MR_FUNCTION(log) MR_FUNCTION(log1p) MR_FUNCTION(sin)
MR_FUNCTION(cos) MR_FUNCTION(tanh) MR_FUNCTION(ceil) MR_FUNCTION(floor) MR_FUNCTION(rint)
#undef MR_FUNCTION
extern "C" void* memcpy(void*, const void*, unsigned long);
extern "C" float atan2f(float, float); extern "C" double atan2(double, double);
extern "C" float powf(float, float); extern "C" double pow(double, double);
template <typename To, typename From> inline To BitsAs(From from) { return __builtin_bit_cast(To, from); }
inline float __int_as_float(int x) { return BitsAs<float>(x); }
inline float __uint_as_float(unsigned x) { return BitsAs<float>(x); }
inline double __longlong_as_double(long long x) { return BitsAs<double>(x); }
inline float HostWiden(unsigned short bits) { return static_cast<float>(BitsAs<_Float16>(bits)); }
inline unsigned short HostNarrow(float x, bool bfloat16) {
  if (!bfloat16) return BitsAs<unsigned short>(static_cast<_Float16>(x));
  const unsigned bits = BitsAs<unsigned>(x);
  return x != x ? 0x7fff : static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
)text";
  static constexpr char kAfter[] = R"text(
template <int... I>
struct Indices {};
template <typename... A, int... I>
void CallWith(void (*kernel)(A...), void** a, Indices<I...>) {
  kernel(*static_cast<A*>(a[I])...);
}
template <typename... A>
void Call(void (*kernel)(A...), void** a) {
  CallWith(kernel, a, Indices<__integer_pack(sizeof...(A))...>());
}
)text";

  inline static void (*call_)(void**) = nullptr;
  inline static void** arguments_ = nullptr;
  TempDirectory dir_ = TempDirectory::Make("host_program").value();
  std::string calls_;
  void* library_ = nullptr;
};

}  // namespace millrace
