#include "millrace/runtime/collective_executor.h"

namespace millrace {
namespace {

CollectiveExecutor::Factory local_factory = nullptr;

}  // namespace

string_view CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kReduce:
      return "Reduce";
    case CollectiveKind::kBroadcast:
      return "Broadcast";
    case CollectiveKind::kGather:
      return "Gather";
    case CollectiveKind::kAllToAll:
      return "AllToAll";
    case CollectiveKind::kReduceScatter:
      return "ReduceScatter";
  }
  return "unknown";
}

void CollectiveExecutor::SetLocalFactory(Factory factory) { local_factory = factory; }

StatusOr<RefPtr<CollectiveExecutor>> CollectiveExecutor::Of(const KernelContext& ctx) {
  if (ctx.resources() == nullptr) return Internal("the step has no resource manager, so no collective ops");
  return ctx.resources()->LookupOrCreate<CollectiveExecutor>(
      kContainer, kName, []() -> StatusOr<RefPtr<CollectiveExecutor>> {
        if (local_factory == nullptr) return Unimplemented("this program is built without collective ops");
        return local_factory();
      });
}

}  // namespace millrace
