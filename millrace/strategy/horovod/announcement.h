// What ranks tell each other of an operation before it is carried out.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/collective/reduction_kind.h"
#include "millrace/runtime/named_collectives.h"
#include "millrace/tensor/dtype.h"

namespace millrace::hvd {

struct Announcement {
  NamedCollective::Kind kind = NamedCollective::Kind::kAllreduce;
  std::string name = {};
  DType dtype = DType::kInvalid;
  std::vector<int64_t> dims = {};
  collective::Reduction reduction = collective::Reduction::kSum;
  int root = 0;

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

// INVALID_ARGUMENT if it cannot be carried out on any rank.
StatusOr<Announcement> AnnouncementOf(const NamedCollective& operation, int ranks);

absl::string_view KindName(NamedCollective::Kind kind);  // "allreduce"
std::string Describe(const Announcement& what);          // "allreduce 'x' (the mean of float[2,3])"

// INVALID_ARGUMENT, with both ranks and what each of them does, unless the ranks can do it together.
Status CheckSame(int rank, const Announcement& what, int other_rank, const Announcement& other);

// What a rank has to say in one round of negotiation.
struct Report {
  std::vector<Announcement> announcements = {};
  bool joins = false;
};
std::string EncodeReport(const Report& report);
// INVALID_ARGUMENT for bytes that are none.
StatusOr<Report> DecodeReport(absl::string_view bytes);

}  // namespace millrace::hvd
