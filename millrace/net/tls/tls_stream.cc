#include "millrace/net/tls/tls_stream.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "millrace/net/tls/openssl_types.h"

namespace millrace::net {
namespace {

constexpr size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;
// What is received at once, and what is encrypted before it is sent; several records.
constexpr size_t kReadAhead = size_t{64} << 10;
constexpr size_t kBatch = 16 * kRecord;
constexpr size_t kBatchEncrypted = kBatch + kBatch / 64;
// A larger buffer does not stay with its stream between two calls.
constexpr size_t kKeptBuffer = 2 * kRecord;
// AES-GCM keeps its promises for 2^24.5 records with one key (RFC 8446, 5.5); far more than this.
constexpr size_t kBytesPerKey = size_t{64} << 30;

// Empty strings with the capacity of a batch, for the streams that this thread writes to: fresh pages for each call
// would take longer than the copies into them.
class SpareBuffers {
 public:
  static void Take(std::string* buffer) {
    if (buffer->capacity() >= kBatchEncrypted) return;
    std::vector<std::string>& spare = Here();
    if (spare.empty()) return buffer->reserve(kBatchEncrypted);
    std::string taken = std::move(spare.back());
    spare.pop_back();
    taken.assign(*buffer);
    *buffer = std::move(taken);
  }
  static void GiveBack(std::string* buffer) {
    if (buffer->capacity() <= kKeptBuffer || !buffer->empty()) return;
    std::vector<std::string>& spare = Here();
    if (spare.size() < kMost) spare.push_back(std::move(*buffer));
    *buffer = std::string();
  }

 private:
  static constexpr size_t kMost = 2;  // what is being sent, and what has been encrypted meanwhile
  static std::vector<std::string>& Here() {
    static thread_local std::vector<std::string> spare;
    return spare;
  }
};

bool IsNumeric(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), address) == 1 || inet_pton(AF_INET6, host.c_str(), address) == 1;
}

Status AddAuthorities(SSL_CTX* context, const std::string& pem) {
  const BioPtr text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  int count = 0;
  while (const CertificatePtr authority{PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)}) {
    X509_STORE_add_cert(store, authority.get());
    ++count;
  }
  ERR_clear_error();
  if (count == 0) return InvalidArgument("the TLS authority has no certificate in it");
  return absl::OkStatus();
}

// The certificate of this process with its intermediate ones.
Status UseCertificates(SSL_CTX* context, const std::string& pem) {
  const BioPtr text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const CertificatePtr own(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  if (own == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1)
    return InvalidArgument("the TLS certificate: ", OpensslError("it cannot be used"));
  while (CertificatePtr next{PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)}) {
    if (SSL_CTX_add0_chain_cert(context, next.get()) == 1) next.release();
  }
  ERR_clear_error();
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Make(const TlsCredentials& credentials) {
  return New(credentials.certificate, credentials.key, &credentials.authority);
}

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::MakeForAnyClient(const std::string& certificate,
                                                                         const std::string& key) {
  return New(certificate, key, nullptr);
}

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::New(const std::string& certificate, const std::string& key,
                                                            const std::string* authority) {
  SslContextPtr context(SSL_CTX_new(TLS_method()));
  if (context == nullptr) return Internal("OpenSSL: ", OpensslError("no context"));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  // The fastest first: processors have instructions for AES.
  SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  // Every connection is authenticated anew.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAhead);
  if (authority != nullptr) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    MR_RETURN_IF_ERROR(AddAuthorities(context.get(), *authority));
  }
  MR_RETURN_IF_ERROR(UseCertificates(context.get(), certificate));
  const KeyPtr private_key = ParseKey(key);
  if (private_key == nullptr || SSL_CTX_use_PrivateKey(context.get(), private_key.get()) != 1)
    return InvalidArgument("the TLS key: ", OpensslError("it is not a private key"));
  return std::shared_ptr<const TlsContext>(new TlsContext(context.release()));
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

// Receives from the socket, and gathers what is to be sent: several records are sent at once, and without the lock.
// (OpenSSL's own socket BIO would also end the process with SIGPIPE when the other side is gone.)
struct TlsStream::Socket {
  static TlsStream* Of(BIO* bio) { return static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int Write(BIO* bio, const char* data, int size) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    BIO_clear_retry_flags(bio);
    Of(bio)->encrypted_.append(data, static_cast<size_t>(size));
    return size;
  }
  static int Read(BIO* bio, char* to, int size) {
    BIO_clear_retry_flags(bio);
    const ssize_t got = recv(Of(bio)->fd_, to, static_cast<size_t>(size), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    return static_cast<int>(got);
  }
  // At the end of each part of the handshake. There is no writing thread yet, and a new socket has room for it.
  static long Control(BIO* bio, int command, long, void*) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (command != BIO_CTRL_FLUSH) return 0;
    std::string& bytes = Of(bio)->encrypted_;
    if (Of(bio)->established_ || bytes.empty()) return 1;
    const ssize_t sent = send(Of(bio)->fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(bytes.size())) return -1;
    bytes.clear();
    return 1;
  }
  static const BIO_METHOD* Method() {
    static const BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
      BIO_meth_set_write(made, Write);
      BIO_meth_set_read(made, Read);
      BIO_meth_set_ctrl(made, Control);
      return made;
    }();
    return method;
  }
};

StatusOr<std::unique_ptr<TlsStream>> TlsStream::New(const TlsContext& context, int fd) {
  std::unique_ptr<TlsStream> stream(new TlsStream(fd));
  MutexLock lock(&stream->mu_);
  stream->ssl_ = SSL_new(context.get());
  BIO* const socket = BIO_new(Socket::Method());
  if (stream->ssl_ == nullptr || socket == nullptr) return Internal("OpenSSL: ", OpensslError("no connection"));
  BIO_set_data(socket, stream.get());
  BIO_set_init(socket, 1);
  SSL_set_bio(stream->ssl_, socket, socket);
  return stream;
}

StatusOr<std::unique_ptr<TlsStream>> TlsStream::Accept(const TlsContext& context, int fd) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<TlsStream> stream, New(context, fd));
  MutexLock lock(&stream->mu_);
  SSL_set_accept_state(stream->ssl_);
  return stream;
}

StatusOr<std::unique_ptr<TlsStream>> TlsStream::Connect(const TlsContext& context, int fd, const std::string& host) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<TlsStream> stream, New(context, fd));
  MutexLock lock(&stream->mu_);
  X509_VERIFY_PARAM* const verify = SSL_get0_param(stream->ssl_);
  X509_VERIFY_PARAM_set_hostflags(verify, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const int named = IsNumeric(host) ? X509_VERIFY_PARAM_set1_ip_asc(verify, host.c_str())
                                    : X509_VERIFY_PARAM_set1_host(verify, host.data(), host.size());
  if (named != 1) return InvalidArgument("TLS: ", host, " is not the name of a host");
  SSL_set_connect_state(stream->ssl_);
  return stream;
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

ssize_t TlsStream::Fail(int result) {
  const int system_error = errno;
  const int kind = SSL_get_error(ssl_, result);
  wants_input_ = kind == SSL_ERROR_WANT_READ;
  switch (kind) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      ERR_clear_error();
      errno = system_error == 0 || system_error == EAGAIN ? ECONNRESET : system_error;
      return -1;
    default:
      break;
  }
  const long verified = SSL_get_verify_result(ssl_);
  error_ = OpensslError("an unknown error");
  if (error_ == "unexpected eof while reading") {
    errno = ECONNRESET;
    return -1;
  }
  if (verified != X509_V_OK) absl::StrAppend(&error_, " (", X509_verify_cert_error_string(verified), ")");
  errno = EPROTO;
  return -1;
}

ssize_t TlsStream::Read(absl::Span<const iovec> to) {
  ssize_t total = 0;
  for (const iovec& part : to) {
    size_t filled = 0;
    while (filled < part.iov_len) {
      MutexLock lock(&mu_);
      errno = 0;
      ERR_clear_error();
      KeepRecordBuffers(part.iov_len - filled > kRecord);
      const int most = static_cast<int>(std::min(part.iov_len - filled, size_t{1} << 30));
      const int got = SSL_read(ssl_, static_cast<char*>(part.iov_base) + filled, most);
      if (!established_) established_ = SSL_is_init_finished(ssl_) == 1;
      if (got <= 0) return total > 0 ? total : Fail(got);
      filled += static_cast<size_t>(got);
      total += got;
    }
  }
  return total;
}

void TlsStream::KeepRecordBuffers(bool keep) {
  if (keep == keeps_record_buffers_) return;
  keeps_record_buffers_ = keep;
  if (keep) {
    SSL_clear_mode(ssl_, SSL_MODE_RELEASE_BUFFERS);
  } else {
    SSL_set_mode(ssl_, SSL_MODE_RELEASE_BUFFERS);
  }
}

void TlsStream::RenewKey() {
  if (with_this_key_ < kBytesPerKey) return;
  if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) with_this_key_ = 0;
  ERR_clear_error();  // not now, because a record waits to be sent
}

bool TlsStream::Encrypt(absl::Span<const iovec> from, size_t skip, int* result) {
  size_t piece = 0;
  while (piece < from.size() && skip >= from[piece].iov_len) skip -= from[piece++].iov_len;
  while (piece < from.size() && ahead_ < kBatch) {
    // A record: out of one large piece, or gathered from small ones.
    const char* data = static_cast<const char*>(from[piece].iov_base) + skip;
    size_t size = std::min(from[piece].iov_len - skip, kRecord);
    if (size == kRecord) {
      skip += size;
    } else {
      if (staged_ == nullptr) staged_ = std::make_unique<char[]>(kRecord);
      for (size = 0; piece < from.size() && size < kRecord;) {
        const size_t part = std::min(from[piece].iov_len - skip, kRecord - size);
        std::memcpy(staged_.get() + size, static_cast<const char*>(from[piece].iov_base) + skip, part);
        size += part;
        skip += part;
        if (skip == from[piece].iov_len) ++piece, skip = 0;
      }
      data = staged_.get();
      if (size == 0) return true;
    }
    if (piece < from.size() && skip == from[piece].iov_len) ++piece, skip = 0;
    MutexLock lock(&mu_);
    if (size == kRecord) {
      SpareBuffers::Take(&encrypted_);
      KeepRecordBuffers(true);
    }
    errno = 0;
    ERR_clear_error();
    RenewKey();
    *result = SSL_write(ssl_, data, static_cast<int>(size));  // all of it: Socket takes everything
    if (!established_) established_ = SSL_is_init_finished(ssl_) == 1;
    if (*result <= 0) return false;
    wants_input_ = false;
    with_this_key_ += size;
    ahead_ += size;
  }
  return true;
}

bool TlsStream::SendEncrypted() {
  for (;;) {
    if (sent_ == sending_.size()) {
      sending_.clear();
      sent_ = 0;
      MutexLock lock(&mu_);
      if (encrypted_.empty()) return true;
      sending_.swap(encrypted_);
    }
    const ssize_t sent = send(fd_, sending_.data() + sent_, sending_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    sent_ += static_cast<size_t>(sent);
  }
}

ssize_t TlsStream::Write(absl::Span<const iovec> from) {
  size_t whole = 0;
  for (const iovec& piece : from) whole += piece.iov_len;
  size_t total = 0;
  while (total < whole) {
    int result = 1;
    if (ahead_ == 0 && !Encrypt(from, total, &result)) {
      MutexLock lock(&mu_);
      return total > 0 ? static_cast<ssize_t>(total) : Fail(result);
    }
    if (!SendEncrypted()) return total > 0 && errno == EAGAIN ? static_cast<ssize_t>(total) : -1;
    total += std::exchange(ahead_, 0);
  }
  if (sending_.capacity() > kKeptBuffer) {
    sending_.clear();
    sent_ = 0;
    SpareBuffers::GiveBack(&sending_);
    MutexLock lock(&mu_);
    SpareBuffers::GiveBack(&encrypted_);
    KeepRecordBuffers(false);
  }
  return static_cast<ssize_t>(total);
}

bool TlsStream::HasPending() const {
  MutexLock lock(&mu_);
  return SSL_has_pending(ssl_) == 1;
}

bool TlsStream::wants_input() const {
  MutexLock lock(&mu_);
  return wants_input_;
}

std::string TlsStream::error() const {
  MutexLock lock(&mu_);
  return error_;
}

}  // namespace millrace::net
