// The ops that create lookup tables.
#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/lookup_table.h"
#include "millrace/ops/data_flow/resource_source.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

bool IsKeyType(DType t) { return t == DType::kInt32 || t == DType::kInt64 || t == DType::kString; }

// Common to the nodes of all tables.
class TableNode {
 public:
  TableNode(KernelInit& init, bool initializable) {
    if (absl::StartsWith(init.node().type(), "Anonymous")) {
      options_.name = init.node().name();
    } else {
      source_.emplace(init);
      options_.name = source_->name();
    }
    options_.initializable = initializable;
    init.Attr("key_dtype", &options_.key_dtype);
    init.Attr("value_dtype", &options_.value_dtype);
    if (!init.status().ok()) return;
    if (!IsKeyType(options_.key_dtype)) FailDType(init, options_.key_dtype);
    if (!IsKnown(options_.value_dtype) || IsRef(options_.value_dtype)) FailDType(init, options_.value_dtype);
  }

  // Reads the attr value_shape.
  void ReadValueShape(KernelInit& init) {
    PartialShape shape;
    init.Attr("value_shape", &shape);
    if (!init.status().ok()) return;
    if (!shape.IsFullyDefined()) {
      init.Fail(InvalidArgument("value_shape must be fully defined, got ", shape.ToString()));
      return;
    }
    options_.value_shape = shape.AsShape();
  }

  Status Emit(KernelContext& ctx, absl::FunctionRef<StatusOr<RefPtr<LookupTable>>()> make) {
    if (!source_.has_value()) return EmitAnonymous(ctx, make);
    return source_->Emit(ctx, make, [this](const LookupTable& found) {
      const LookupTable::Options& has = found.options();
      if (has.key_dtype == options_.key_dtype && has.value_dtype == options_.value_dtype) return absl::OkStatus();
      return InvalidArgument("Conflicting key/value dtypes ", options_.key_dtype, "->", options_.value_dtype, " with ",
                             has.key_dtype, "-", has.value_dtype, " for table ", has.name);
    });
  }

  const LookupTable::Options& options() const { return options_; }

 private:
  // A new table that lives as long as its handles.
  static Status EmitAnonymous(KernelContext& ctx, absl::FunctionRef<StatusOr<RefPtr<LookupTable>>()> make) {
    MR_ASSIGN_OR_RETURN(RefPtr<LookupTable> table, make());
    ResourceHandle handle;
    handle.device = ctx.device()->name();
    handle.name = ctx.node().name();
    handle.type_name = LookupTable::kTypeName;
    handle.resource = std::move(table);
    ctx.SetOutput(0, MakeHandleTensor(ctx.output_type(0), std::move(handle)));
    return absl::OkStatus();
  }

  std::optional<ResourceSource<LookupTable>> source_;  // none if the table is anonymous
  LookupTable::Options options_;
};

enum class TableKind { kInitializable, kMutable, kOfTensors };

template <TableKind kKind>
class HashTableKernel : public Kernel {
 public:
  explicit HashTableKernel(KernelInit& init) : node_(init, kKind == TableKind::kInitializable) {
    if constexpr (kKind == TableKind::kOfTensors) {
      node_.ReadValueShape(init);
      const Shape& shape = node_.options().value_shape;
      if (init.status().ok() && shape.rank() != 1) {
        init.Fail(InvalidArgument("Default value must be a vector, got shape ", shape.ToString()));
      }
    }
  }

  Status Compute(KernelContext& ctx) override {
    return node_.Emit(ctx, [this] { return LookupTable::MakeHashed(node_.options()); });
  }

 private:
  TableNode node_;
};

class DenseHashTableKernel : public Kernel {
 public:
  explicit DenseHashTableKernel(KernelInit& init) : node_(init, false) {
    node_.ReadValueShape(init);
    init.Attr("initial_num_buckets", &num_buckets_);
    init.Attr("max_load_factor", &max_load_factor_);
  }

  Status Compute(KernelContext& ctx) override {
    return node_.Emit(ctx, [&] {
      LookupTable::DenseOptions dense;
      dense.empty_key = ctx.input(0).Clone();
      if (ctx.num_inputs() > 1) dense.deleted_key = ctx.input(1).Clone();
      dense.num_buckets = num_buckets_;
      dense.max_load_factor = max_load_factor_;
      return LookupTable::MakeDense(node_.options(), std::move(dense));
    });
  }

 private:
  TableNode node_;
  int64_t num_buckets_ = 0;
  float max_load_factor_ = 0;
};

#define MR_TABLE(builder)                          \
  builder.Attr("container: string = ''")           \
      .Attr("shared_name: string = ''")            \
      .Attr("use_node_name_sharing: bool = false") \
      .Attr("key_dtype: type")                     \
      .Attr("value_dtype: type")                   \
      .Stateful()                                  \
      .Shape(ScalarShape)                          \
      .NotDifferentiable()

#define MR_HASH_TABLE(name, handle) \
  MR_TABLE(MILLRACE_OP(name).Output("table_handle: " handle)).Summary("An immutable hash table, initialized once.")
MR_HASH_TABLE(HashTable, "Ref(string)");
MR_HASH_TABLE(HashTableV2, "resource");

#define MR_MUTABLE_HASH_TABLE(name, handle) \
  MR_TABLE(MILLRACE_OP(name).Output("table_handle: " handle)).Summary("A mutable hash table from keys to scalars.")
MR_MUTABLE_HASH_TABLE(MutableHashTable, "Ref(string)");
MR_MUTABLE_HASH_TABLE(MutableHashTableV2, "resource");

#define MR_TENSOR_HASH_TABLE(name, handle)                    \
  MR_TABLE(MILLRACE_OP(name).Output("table_handle: " handle)) \
      .Attr("value_shape: shape = []")                        \
      .Summary("A mutable hash table from keys to tensors.")
MR_TENSOR_HASH_TABLE(MutableHashTableOfTensors, "Ref(string)");
MR_TENSOR_HASH_TABLE(MutableHashTableOfTensorsV2, "resource");

#define MR_DENSE_HASH_TABLE(builder)             \
  MR_TABLE(builder)                              \
      .Attr("value_shape: shape = []")           \
      .Attr("initial_num_buckets: int = 131072") \
      .Attr("max_load_factor: float = 0.8")      \
      .Summary("A mutable hash table in two tensors, with open addressing.")
MR_DENSE_HASH_TABLE(
    MILLRACE_OP(MutableDenseHashTable).Input("empty_key: key_dtype").Output("table_handle: Ref(string)"));
MR_DENSE_HASH_TABLE(MILLRACE_OP(MutableDenseHashTableV2)
                        .Input("empty_key: key_dtype")
                        .Input("deleted_key: key_dtype")
                        .Output("table_handle: resource"));

#define MR_ANONYMOUS_TABLE(builder)        \
  builder.Output("table_handle: resource") \
      .Attr("key_dtype: type")             \
      .Attr("value_dtype: type")           \
      .Stateful()                          \
      .Shape(ScalarShape)                  \
      .NotDifferentiable()
MR_ANONYMOUS_TABLE(MILLRACE_OP(AnonymousHashTable))
    .Summary("An immutable hash table that lives as long as its handle.");
MR_ANONYMOUS_TABLE(MILLRACE_OP(AnonymousMutableHashTable))
    .Summary("A mutable hash table from keys to scalars that lives as long as its handle.");
MR_ANONYMOUS_TABLE(MILLRACE_OP(AnonymousMutableHashTableOfTensors))
    .Attr("value_shape: shape = []")
    .Summary("A mutable hash table from keys to tensors that lives as long as its handle.");
MR_ANONYMOUS_TABLE(
    MILLRACE_OP(AnonymousMutableDenseHashTable).Input("empty_key: key_dtype").Input("deleted_key: key_dtype"))
    .Attr("value_shape: shape = []")
    .Attr("initial_num_buckets: int = 131072")
    .Attr("max_load_factor: float = 0.8")
    .Summary("A mutable hash table in two tensors that lives as long as its handle.");
MILLRACE_KERNEL(AnonymousHashTable, kCpu, HashTableKernel<TableKind::kInitializable>);
MILLRACE_KERNEL(AnonymousMutableHashTable, kCpu, HashTableKernel<TableKind::kMutable>);
MILLRACE_KERNEL(AnonymousMutableHashTableOfTensors, kCpu, HashTableKernel<TableKind::kOfTensors>);
MILLRACE_KERNEL(AnonymousMutableDenseHashTable, kCpu, DenseHashTableKernel);

MILLRACE_KERNEL(HashTable, kCpu, HashTableKernel<TableKind::kInitializable>);
MILLRACE_KERNEL(HashTableV2, kCpu, HashTableKernel<TableKind::kInitializable>);
MILLRACE_KERNEL(MutableHashTable, kCpu, HashTableKernel<TableKind::kMutable>);
MILLRACE_KERNEL(MutableHashTableV2, kCpu, HashTableKernel<TableKind::kMutable>);
MILLRACE_KERNEL(MutableHashTableOfTensors, kCpu, HashTableKernel<TableKind::kOfTensors>);
MILLRACE_KERNEL(MutableHashTableOfTensorsV2, kCpu, HashTableKernel<TableKind::kOfTensors>);
MILLRACE_KERNEL(MutableDenseHashTable, kCpu, DenseHashTableKernel);
MILLRACE_KERNEL(MutableDenseHashTableV2, kCpu, DenseHashTableKernel);

}  // namespace
}  // namespace millrace
