// TLS over a non-blocking socket.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"

struct ssl_ctx_st;
struct ssl_st;

namespace millrace::net {

// The certificate of this process and the authority of its peers, parsed once for all connections. Immutable and
// thread-safe.
class TlsContext {
 public:
  // INVALID_ARGUMENT says which of the three is not usable.
  static StatusOr<std::shared_ptr<const TlsContext>> Make(const TlsCredentials& credentials);
  // For a server that browsers use: its clients have no certificates, and are known by other means or not at all.
  static StatusOr<std::shared_ptr<const TlsContext>> MakeForAnyClient(const std::string& certificate,
                                                                      const std::string& key);
  ~TlsContext();
  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  // `authority` is null if peers are not authenticated.
  static StatusOr<std::shared_ptr<const TlsContext>> New(const std::string& certificate, const std::string& key,
                                                         const std::string* authority);
  ssl_ctx_st* const context_;
};

// One end of a connection with mutual authentication (unless its context does without), TLS 1.3 only. The handshake is
// made by the first calls of Read and Write (on the accepting side, by Read alone). Thread-safe: one thread may read
// while another writes, but they encrypt and decrypt in turns, a record at a time.
class TlsStream {
 public:
  // `fd` must outlive the stream; who owns it shuts it down and closes it.
  static StatusOr<std::unique_ptr<TlsStream>> Accept(const TlsContext& context, int fd);
  // The other side's certificate must be for `host`, a name or a numeric address, and valid for servers.
  static StatusOr<std::unique_ptr<TlsStream>> Connect(const TlsContext& context, int fd, const std::string& host);
  ~TlsStream();

  // As recvmsg: the number of bytes, 0 at the end, or -1 and errno: EAGAIN (the socket has nothing more), or EPROTO
  // with error(). Bytes may have been received from the socket already: read until EAGAIN before waiting for it.
  ssize_t Read(absl::Span<const iovec> to);
  // As sendmsg: the number of bytes, or -1 and errno. After EAGAIN, and for the bytes that were not written, the next
  // call must begin with the same bytes.
  ssize_t Write(absl::Span<const iovec> from);
  // Whether received bytes may be waiting in the stream.
  bool HasPending() const;
  // After EAGAIN: whether it waits for the socket to be readable; otherwise writable.
  bool wants_input() const;
  // What failed, for use in messages; empty if nothing did.
  std::string error() const;

 private:
  // What OpenSSL calls for reading and writing.
  struct Socket;

  explicit TlsStream(int fd) : fd_(fd) {}
  static StatusOr<std::unique_ptr<TlsStream>> New(const TlsContext& context, int fd);
  // Encrypts a batch of `from`, after its first `skip` bytes. Returns false if that fails (Fail).
  bool Encrypt(absl::Span<const iovec> from, size_t skip, int* result);
  // Sends what has been encrypted. False, with errno, if the socket does not take all of it.
  bool SendEncrypted();
  // Translates a result of SSL_read or SSL_write that is not positive.
  ssize_t Fail(int result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RenewKey() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether OpenSSL keeps its buffers between two records: yes while much is sent or received, no on an idle
  // connection.
  void KeepRecordBuffers(bool keep) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int fd_;
  mutable Mutex mu_;
  ssl_st* ssl_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::string encrypted_ ABSL_GUARDED_BY(mu_);     // to be sent after `sending_`
  bool established_ ABSL_GUARDED_BY(mu_) = false;  // the handshake is complete
  std::string error_ ABSL_GUARDED_BY(mu_);
  bool wants_input_ ABSL_GUARDED_BY(mu_) = false;
  bool keeps_record_buffers_ ABSL_GUARDED_BY(mu_) = false;
  size_t with_this_key_ ABSL_GUARDED_BY(mu_) = 0;  // bytes sent
  // Used by the writing thread.
  std::string sending_;
  size_t sent_ = 0;   // of sending_
  size_t ahead_ = 0;  // bytes that are encrypted, and not reported as written because not all of that has been sent
  std::unique_ptr<char[]> staged_;
};

}  // namespace millrace::net
