#include "millrace/net/grpc/grpc_text.h"

#if defined(__SANITIZE_THREAD__)
// Of libtsan, which has no header for them.
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace millrace::net {
namespace {

// While one exists, ThreadSanitizer does not see what this thread reads.
class UnseenReads {
 public:
  UnseenReads() {
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
#endif
  }
  ~UnseenReads() {
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  UnseenReads(const UnseenReads&) = delete;
  UnseenReads& operator=(const UnseenReads&) = delete;
};

}  // namespace

std::string CopyText(const grpc_slice& slice) {
  const UnseenReads unseen;
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

std::string CopyText(const char* text) {
  const UnseenReads unseen;
  return text == nullptr ? std::string() : std::string(text);
}

}  // namespace millrace::net
