#include "millrace/saved_model/saved_model.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "millrace/base/mutex.h"
#include "millrace/saved_model/direct_restore.h"
#include "millrace/saved_model/graph_attrs.h"
#include "millrace/saved_model/imported_variables.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace {
namespace {

// "x:0" for "x".
std::string FullName(const std::string& tensor) {
  return tensor.find(':') == std::string::npos ? tensor + ":0" : tensor;
}

// A signature as a step of the session.
struct Compiled {
  pb::SignatureDef signature;
  std::vector<std::string> inputs;  // in the order of the feeds
  std::map<std::string, Tensor> defaults;
  // Where each output comes from: a fetch, or an input that is returned as it is.
  struct Source {
    std::string name;
    int fetch = -1;
    int feed = -1;
  };
  std::vector<Source> outputs;
  std::unique_ptr<Callable> callable;  // null if there is nothing to fetch
};

}  // namespace

struct SavedModel::State {
  std::string directory;
  pb::MetaGraphDef meta;
  Signatures signatures;
  std::unique_ptr<Session> session;

  Mutex mu;
  std::map<std::string, std::shared_ptr<const Compiled>> compiled ABSL_GUARDED_BY(mu);
};

SavedModel::SavedModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
SavedModel::~SavedModel() = default;
const std::string& SavedModel::directory() const { return state_->directory; }
const Signatures& SavedModel::signatures() const { return state_->signatures; }
Session& SavedModel::session() { return *state_->session; }
const pb::MetaGraphDef& SavedModel::meta_graph() const { return state_->meta; }

StatusOr<std::unique_ptr<SavedModel>> LoadSavedModel(const SessionOptions& options, const std::string& directory,
                                                     const TagSet& tags, const LoadSavedModelOptions& load_options) {
  MR_ASSIGN_OR_RETURN(pb::SavedModel file, ReadSavedModel(directory));
  const StatusOr<pb::MetaGraphDef*> found = FindMetaGraph(&file, tags);
  if (!found.ok()) return WithPrefix(absl::StrCat(directory, ": "), found.status());
  const StatusOr<SavedModelSetup> setup = SetupOf(**found, directory);
  if (!setup.ok()) return WithPrefix(absl::StrCat(directory, ": "), setup.status());
  auto state = std::make_unique<SavedModel::State>();
  state->directory = directory;
  state->meta = std::move(**found);
  RemoveNewDefaultAttrs(&state->meta);
  UseRestoredCopies(&state->meta);
  for (const auto& [name, signature] : state->meta.signature_def()) {
    if (!IsInternalSignature(name)) state->signatures[name] = signature;
  }
  // With file_roots the session checks the paths, so its ops must do the reading.
  DirectRestore direct;
  if (load_options.map_variables && options.target.empty() && options.file_roots.empty() && !setup->restore.empty())
    direct = PlanDirectRestore(&state->meta);
  MR_ASSIGN_OR_RETURN(state->session, Session::Create(options));
  const Status extended = state->session->Extend(std::move(*state->meta.mutable_graph_def()));
  state->meta.clear_graph_def();
  if (!extended.ok()) return WithPrefix(absl::StrCat(directory, ": "), extended);
  std::function<Status(const std::string&)> restore;
  if (!direct.targets.empty()) {
    restore = [&](const std::string& checkpoint) { return RunDirectRestore(direct, checkpoint, state->session.get()); };
  }
  MR_RETURN_IF_ERROR(SetUp(*setup, state->session.get(), restore));
  return std::unique_ptr<SavedModel>(new SavedModel(std::move(state)));
}

StatusOr<const pb::SignatureDef*> SavedModel::FindSignature(const std::string& name) const {
  const auto found = state_->signatures.find(name);
  if (found != state_->signatures.end()) return &found->second;
  return SignatureNotFound(name, state_->signatures);
}

namespace {

Status CheckIsTensor(const char* what, const std::string& name, const pb::TensorInfo& info) {
  if (info.encoding_case() == pb::TensorInfo::kName) return absl::OkStatus();
  return Unimplemented(what, " '", name, "' is not a single tensor: ", TensorInfoText(info));
}

StatusOr<std::shared_ptr<const Compiled>> Compile(const pb::SignatureDef& signature, Session* session) {
  auto compiled = std::make_shared<Compiled>();
  compiled->signature = signature;
  CallableSpec spec;
  // By name, so that the order does not depend on the map's hashes.
  for (const auto& [name, info] : std::map(signature.inputs().begin(), signature.inputs().end())) {
    MR_RETURN_IF_ERROR(CheckIsTensor("input", name, info));
    compiled->inputs.push_back(name);
    spec.feeds.push_back(FullName(info.name()));
  }
  for (const auto& [name, info] : std::map(signature.outputs().begin(), signature.outputs().end())) {
    MR_RETURN_IF_ERROR(CheckIsTensor("output", name, info));
    const std::string tensor = FullName(info.name());
    const auto fed = std::find(spec.feeds.begin(), spec.feeds.end(), tensor);
    if (fed != spec.feeds.end()) {
      compiled->outputs.push_back({.name = name, .feed = static_cast<int>(fed - spec.feeds.begin())});
      continue;
    }
    auto fetched = std::find(spec.fetches.begin(), spec.fetches.end(), tensor);
    if (fetched == spec.fetches.end()) fetched = spec.fetches.insert(fetched, tensor);
    compiled->outputs.push_back({.name = name, .fetch = static_cast<int>(fetched - spec.fetches.begin())});
  }
  for (const auto& [name, proto] : signature.defaults()) {
    StatusOr<Tensor> value = TensorFromProto(proto);
    if (!value.ok()) return WithPrefix(absl::StrCat("the default of input '", name, "': "), value.status());
    compiled->defaults[name] = *std::move(value);
  }
  if (!spec.fetches.empty()) {
    MR_ASSIGN_OR_RETURN(compiled->callable, session->MakeCallable(spec));
  }
  return compiled;
}

StatusOr<std::vector<Tensor>> FeedsOf(const Compiled& compiled, const SavedModel::NamedTensors& inputs) {
  const auto& declared = compiled.signature.inputs();
  for (const auto& [name, tensor] : inputs) {
    const auto found = declared.find(name);
    if (found == declared.end()) {
      return InvalidArgument("no input '", name, "'; there ",
                             declared.empty() ? "is none" : "are: ", absl::StrJoin(compiled.inputs, ", "));
    }
    MR_RETURN_IF_ERROR(WithPrefix(absl::StrCat("input '", name, "' "), CheckTensorFits(found->second, tensor)));
  }
  std::vector<Tensor> feeds;
  for (const std::string& name : compiled.inputs) {
    auto found = inputs.find(name);
    if (found == inputs.end()) {
      found = compiled.defaults.find(name);
      if (found == compiled.defaults.end())
        return InvalidArgument("input '", name, "' is missing: ", TensorInfoText(declared.at(name)));
    }
    feeds.push_back(found->second);
  }
  return feeds;
}

}  // namespace

StatusOr<SavedModel::NamedTensors> SavedModel::Predict(const std::string& signature, const NamedTensors& inputs) {
  const std::string where = absl::StrCat("signature '", signature, "': ");
  std::shared_ptr<const Compiled> step;
  {
    MutexLock lock(&state_->mu);
    const auto found = state_->compiled.find(signature);
    if (found != state_->compiled.end()) step = found->second;
  }
  if (step == nullptr) {
    MR_ASSIGN_OR_RETURN(const pb::SignatureDef* def, FindSignature(signature));
    StatusOr<std::shared_ptr<const Compiled>> made = Compile(*def, state_->session.get());
    if (!made.ok()) return WithPrefix(where, made.status());
    MutexLock lock(&state_->mu);
    step = state_->compiled.emplace(signature, *std::move(made)).first->second;
  }
  const StatusOr<std::vector<Tensor>> feeds = FeedsOf(*step, inputs);
  if (!feeds.ok()) return WithPrefix(where, feeds.status());
  std::vector<Tensor> fetched;
  if (step->callable != nullptr) {
    if (const Status run = step->callable->Run(*feeds, &fetched); !run.ok()) return WithPrefix(where, run);
  }
  NamedTensors outputs;
  for (const Compiled::Source& source : step->outputs) {
    outputs[source.name] =
        source.fetch >= 0 ? fetched[static_cast<size_t>(source.fetch)] : (*feeds)[static_cast<size_t>(source.feed)];
  }
  return outputs;
}

}  // namespace millrace
