// Stands for a libmillrace_cuda.so of another version.
extern "C" {
struct Library {
  const char* version;
};
extern const Library millrace_cuda_library;
const Library millrace_cuda_library = {"0.0.0"};
}
