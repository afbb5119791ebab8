#include "millrace/api/lookup_table.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/reductions.h"
#include "millrace/api/replica.h"
#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"

namespace millrace {
namespace {

// Tables outlive sessions in a server's task: the name says what is in one, so that another vocabulary is another
// table.
std::string NameOfContent(absl::string_view what, absl::string_view content) {
  return absl::StrCat("id_table_", what, "_", content.size(), "_", api_internal::HashOfName(content), "_",
                      api_internal::HashOfName(absl::StrCat("second", content)));
}

IdTable Failed(const Scope& s, const Status& status) {
  s.UpdateStatus(status);
  return IdTable();
}

// The vocabulary as one string, with lengths, so that no two of them are equal.
std::string TextOf(const Tensor& vocabulary) {
  std::string text;
  for (int64_t i = 0; i < vocabulary.num_elements(); ++i) {
    if (vocabulary.dtype() == DType::kString) {
      const std::string& key = vocabulary.data<std::string>()[i];
      absl::StrAppend(&text, key.size(), ":", key);
    } else {
      absl::StrAppend(&text, vocabulary.data<int64_t>()[i], ",");
    }
  }
  return text;
}

template <typename T>
Status CheckUnique(const Tensor& vocabulary) {
  absl::flat_hash_set<T> seen;
  for (const T& key : vocabulary.flat<T>()) {
    if (!seen.insert(key).second) return InvalidArgument("the vocabulary has '", key, "' twice");
  }
  return absl::OkStatus();
}

}  // namespace

void AddTableInitializer(const Operation& op) {
  if (!op.empty()) api_internal::StateOf(op.scope()).table_initializers.push_back(op.node());
}

std::vector<Operation> TableInitializers(const Scope& scope) {
  std::vector<Operation> ops;
  for (Node* const node : api_internal::StateOf(scope).table_initializers) ops.emplace_back(scope, node);
  return ops;
}

Operation TablesInitializer(const Scope& scope) {
  return Group(scope.op_name().empty() ? scope.WithOpName("init_tables") : scope, TableInitializers(scope));
}

IdTable MakeIdTable(const Scope& scope, const std::string& shared_name, DType key_dtype, int64_t size,
                    const IdTableOptions& options, Output* handle) {
  IdTable table;
  table.handle_ = *handle =
      Op(scope.WithOpName("table"), "HashTableV2", {},
         {{"key_dtype", key_dtype}, {"value_dtype", DType::kInt64}, {"shared_name", shared_name}});
  table.key_dtype_ = key_dtype;
  table.size_ = size;
  table.options_ = options;
  return table;
}

IdTable IndexTableFromTensor(const Scope& scope, const Tensor& vocabulary, const IdTableOptions& options) {
  const Scope s = scope.ForComposite("id_table");
  if (!s.ok()) return IdTable();
  if (options.num_oov_buckets < 0) return Failed(s, InvalidArgument("num_oov_buckets is ", options.num_oov_buckets));
  if (vocabulary.dtype() != DType::kString && vocabulary.dtype() != DType::kInt64)
    return Failed(s, InvalidArgument("the vocabulary has type ", vocabulary.dtype(), ", not string or int64"));
  if (vocabulary.rank() != 1 || vocabulary.num_elements() == 0)
    return Failed(s, InvalidArgument("the vocabulary has shape ", vocabulary.shape().ToString(),
                                     ", not that of a list with at least one key"));
  const Status unique =
      vocabulary.dtype() == DType::kString ? CheckUnique<std::string>(vocabulary) : CheckUnique<int64_t>(vocabulary);
  if (!unique.ok()) return Failed(s, unique);
  const int64_t size = vocabulary.num_elements();
  Output handle;
  IdTable table = MakeIdTable(s, NameOfContent("list", TextOf(vocabulary)), vocabulary.dtype(), size, options, &handle);
  const Scope outside = s.WithoutControlDependencies();
  const Output ids = Op(outside, "Range", {int64_t{0}, Input(size).In(outside, DType::kInt64), int64_t{1}});
  AddTableInitializer(AddOp(outside.WithOpName("init"), "InitializeTableV2", {handle, vocabulary, ids}));
  return table;
}

IdTable IndexTableFromFile(const Scope& scope, const std::string& file, const IdTableFileOptions& options,
                           Output* asset) {
  const Scope s = scope.ForComposite("id_table");
  if (!s.ok()) return IdTable();
  if (options.num_oov_buckets < 0) return Failed(s, InvalidArgument("num_oov_buckets is ", options.num_oov_buckets));
  if (options.vocabulary_size < 1)
    return Failed(s, InvalidArgument("the vocabulary of ", file, " has size ", options.vocabulary_size));
  if (options.key_dtype != DType::kString && options.key_dtype != DType::kInt64)
    return Failed(s, InvalidArgument("the keys of ", file, " have type ", options.key_dtype, ", not string or int64"));
  Output handle;
  const std::string content = absl::StrCat(file, "_", options.vocabulary_size, "_", DTypeName(options.key_dtype));
  IdTable table =
      MakeIdTable(s, NameOfContent("file", content), options.key_dtype, options.vocabulary_size,
                  {.num_oov_buckets = options.num_oov_buckets, .default_value = options.default_value}, &handle);
  const Scope outside = s.WithoutControlDependencies();
  const Output name = Input(file).In(outside, DType::kString, "file");
  if (asset != nullptr) *asset = name;
  AddTableInitializer(
      AddOp(outside.WithOpName("init"), "InitializeTableFromTextFileV2", {handle, name},
            {{"key_index", int64_t{-2}}, {"value_index", int64_t{-1}}, {"vocab_size", options.vocabulary_size}}));
  return table;
}

Output IdTable::Lookup(const Scope& scope, const Input& keys) const {
  const Scope s = scope.ForComposite("lookup");
  if (!s.ok() || handle_.empty()) return Output(s, Endpoint{});
  Output given = keys.In(s, key_dtype_, "keys");
  if (key_dtype_ == DType::kInt64) given = api_internal::Cast(s, given, DType::kInt64);
  const bool buckets = options_.num_oov_buckets > 0;
  const Output ids = Op(s, "LookupTableFindV2",
                        {handle_, given, Input(buckets ? int64_t{-1} : options_.default_value).In(s, DType::kInt64)},
                        {{"Tout", DType::kInt64}});
  if (!buckets) return ids;
  const Output text = key_dtype_ == DType::kString ? given : Op(s, "AsString", {given});
  const Output hashed = Op(s, "StringToHashBucketFast", {text}, {{"num_buckets", options_.num_oov_buckets}});
  const Output after = Op(s, "AddV2", {hashed, Input(size_).In(s, DType::kInt64)});
  return Op(s, "SelectV2", {Op(s, "NotEqual", {ids, Input(int64_t{-1}).In(s, DType::kInt64)}), ids, after});
}

}  // namespace millrace
