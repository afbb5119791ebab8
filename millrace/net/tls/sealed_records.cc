#include "millrace/net/tls/sealed_records.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>

#include "millrace/net/tls/openssl_types.h"

namespace millrace::net {
namespace {

constexpr size_t kSealNonce = 12, kSealTag = 16, kRecordHeader = 4;
constexpr size_t kMaxRecord = 64 << 10;  // plain bytes

using CipherPtr = std::unique_ptr<EVP_CIPHER_CTX, OpensslFree<EVP_CIPHER_CTX_free>>;

const unsigned char* Bytes(absl::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* Bytes(std::string* text, size_t at) { return reinterpret_cast<unsigned char*>(text->data()) + at; }

// Appends the sealed text and its tag to `out`.
Status AppendSealed(absl::string_view key, absl::string_view nonce, absl::string_view plain, std::string* out) {
  MR_CHECK(key.size() == kSealKeySize && nonce.size() == kSealNonce);
  const CipherPtr cipher(EVP_CIPHER_CTX_new());
  const size_t at = out->size();
  out->resize(at + plain.size() + kSealTag);
  int size = 0;
  if (cipher == nullptr ||
      EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, Bytes(key), Bytes(nonce)) != 1 ||
      EVP_EncryptUpdate(cipher.get(), Bytes(out, at), &size, Bytes(plain), static_cast<int>(plain.size())) != 1 ||
      EVP_EncryptFinal_ex(cipher.get(), Bytes(out, at + size), &size) != 1 ||
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kSealTag, Bytes(out, at + plain.size())) != 1)
    return Internal("cannot encrypt: ", OpensslError("OpenSSL"));
  return absl::OkStatus();
}

// `sealed` ends with its tag. Appends the plain text to `out`.
Status AppendOpened(absl::string_view key, absl::string_view nonce, absl::string_view sealed, std::string* out) {
  MR_CHECK(key.size() == kSealKeySize && nonce.size() == kSealNonce && sealed.size() >= kSealTag);
  std::string tag(sealed.substr(sealed.size() - kSealTag));
  sealed.remove_suffix(kSealTag);
  const CipherPtr cipher(EVP_CIPHER_CTX_new());
  std::string plain(sealed.size(), '\0');
  int size = 0;
  unsigned char last[16];
  if (cipher == nullptr ||
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, Bytes(key), Bytes(nonce)) != 1 ||
      EVP_DecryptUpdate(cipher.get(), Bytes(&plain, 0), &size, Bytes(sealed), static_cast<int>(sealed.size())) != 1 ||
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kSealTag, tag.data()) != 1 ||
      EVP_DecryptFinal_ex(cipher.get(), last, &size) != 1) {
    OpensslError("");  // clears it
    return absl::PermissionDeniedError("it was sealed with another key");
  }
  absl::StrAppend(out, plain);
  return absl::OkStatus();
}

std::string RecordNonce(uint8_t direction, uint64_t number) {
  std::string nonce(kSealNonce, '\0');
  nonce[0] = static_cast<char>(direction);
  for (int i = 0; i < 8; ++i) nonce[4 + i] = static_cast<char>(number >> (8 * i));
  return nonce;
}

}  // namespace

StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(Bytes(&bytes, 0), static_cast<int>(count)) != 1)
    return absl::ResourceExhaustedError(absl::StrCat("no random numbers: ", OpensslError("OpenSSL")));
  return bytes;
}

StatusOr<std::string> DeriveSealKey(absl::string_view secret, absl::string_view label) {
  const std::unique_ptr<EVP_PKEY_CTX, OpensslFree<EVP_PKEY_CTX_free>> hkdf(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
  std::string key(kSealKeySize, '\0');
  size_t size = key.size();
  if (hkdf == nullptr || EVP_PKEY_derive_init(hkdf.get()) != 1 ||
      EVP_PKEY_CTX_set_hkdf_md(hkdf.get(), EVP_sha256()) != 1 ||
      EVP_PKEY_CTX_set1_hkdf_key(hkdf.get(), Bytes(secret), static_cast<int>(secret.size())) != 1 ||
      EVP_PKEY_CTX_add1_hkdf_info(hkdf.get(), Bytes(label), static_cast<int>(label.size())) != 1 ||
      EVP_PKEY_derive(hkdf.get(), Bytes(&key, 0), &size) != 1)
    return Internal("cannot derive a key: ", OpensslError("OpenSSL"));
  return key;
}

StatusOr<std::string> SealMessage(absl::string_view key, absl::string_view message) {
  MR_ASSIGN_OR_RETURN(std::string sealed, RandomBytes(kSealNonce));
  const std::string nonce = sealed;
  MR_RETURN_IF_ERROR(AppendSealed(key, nonce, message, &sealed));
  return sealed;
}

StatusOr<std::string> OpenMessage(absl::string_view key, absl::string_view sealed) {
  if (sealed.size() < kSealNonce + kSealTag) return absl::PermissionDeniedError("it is too short");
  std::string message;
  MR_RETURN_IF_ERROR(AppendOpened(key, sealed.substr(0, kSealNonce), sealed.substr(kSealNonce), &message));
  return message;
}

StatusOr<std::string> RecordSealer::Seal(absl::string_view plain) {
  std::string bytes;
  do {
    const absl::string_view part = plain.substr(0, kMaxRecord);
    plain.remove_prefix(part.size());
    for (size_t i = 0; i < kRecordHeader; ++i) bytes.push_back(static_cast<char>((part.size() + kSealTag) >> (8 * i)));
    MR_RETURN_IF_ERROR(AppendSealed(key_, RecordNonce(direction_, next_++), part, &bytes));
  } while (!plain.empty());
  return bytes;
}

Status RecordOpener::Open(absl::string_view bytes, std::string* plain) {
  absl::StrAppend(&buffer_, bytes);
  absl::string_view rest = buffer_;
  while (rest.size() >= kRecordHeader) {
    size_t size = 0;
    for (size_t i = 0; i < kRecordHeader; ++i)
      size |= static_cast<size_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
    if (size < kSealTag || size > kMaxRecord + kSealTag)
      return absl::PermissionDeniedError(absl::StrCat("a record of ", size, " bytes"));
    if (rest.size() < kRecordHeader + size) break;
    MR_RETURN_IF_ERROR(AppendOpened(key_, RecordNonce(direction_, next_++), rest.substr(kRecordHeader, size), plain));
    rest.remove_prefix(kRecordHeader + size);
  }
  buffer_.erase(0, buffer_.size() - rest.size());
  return absl::OkStatus();
}

}  // namespace millrace::net
