// The ops that use lookup tables.
#include "millrace/ops/data_flow/table_access.h"

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {

StatusOr<RefPtr<LookupTable>> TableInput(const KernelContext& ctx, DType key_dtype, DType value_dtype) {
  MR_ASSIGN_OR_RETURN(RefPtr<LookupTable> table, ctx.resource<LookupTable>(0));
  const LookupTable::Options& has = table->options();
  if ((key_dtype == DType::kInvalid || key_dtype == has.key_dtype) &&
      (value_dtype == DType::kInvalid || value_dtype == has.value_dtype)) {
    return table;
  }
  return InvalidArgument("Signature mismatch, have: ", key_dtype, "->", value_dtype, " expected: ", has.key_dtype, "->",
                         has.value_dtype, " of table ", has.name);
}

Status ChangeTable(KernelContext& ctx, absl::FunctionRef<Status()> change) {
  const UpdateOrigin origin = UpdateOrigin::Of(ctx);
  return ctx.resources()->Update(origin, change);
}

namespace {

class FindKernel : public Kernel {
 public:
  explicit FindKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<LookupTable> table, TableInput(ctx, ctx.input(1).dtype(), ctx.input(2).dtype()));
    StatusOr<Tensor> values = table->Find(ctx.input(1), ctx.input(2), ctx.allocator());
    if (!values.ok()) return values.status();
    ctx.SetOutput(0, *std::move(values));
    return absl::OkStatus();
  }
};

enum class Change { kInitialize, kInsert, kImport };

template <Change kChange>
class ChangeKernel : public Kernel {
 public:
  explicit ChangeKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    const Tensor& keys = ctx.input(1);
    const Tensor& values = ctx.input(2);
    MR_ASSIGN_OR_RETURN(RefPtr<LookupTable> table, TableInput(ctx, keys.dtype(), values.dtype()));
    return ChangeTable(ctx, [&] {
      if constexpr (kChange == Change::kInitialize) {
        if (keys.num_elements() == 0) return InvalidArgument("keys and values cannot be empty tensors.");
        return table->Initialize(keys, values);
      }
      if constexpr (kChange == Change::kInsert) return table->Insert(keys, values);
      return table->Import(keys, values);
    });
  }
};

class RemoveKernel : public Kernel {
 public:
  explicit RemoveKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<LookupTable> table, TableInput(ctx, ctx.input(1).dtype(), DType::kInvalid));
    return ChangeTable(ctx, [&] { return table->Remove(ctx.input(1)); });
  }
};

class TableSizeKernel : public Kernel {
 public:
  explicit TableSizeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<LookupTable> table, ctx.resource<LookupTable>(0));
    ctx.SetOutput(0, Tensor::Scalar<int64_t>(table->size()));
    return absl::OkStatus();
  }
};

class ExportKernel : public Kernel {
 public:
  explicit ExportKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<LookupTable> table, TableInput(ctx, ctx.output_type(0), ctx.output_type(1)));
    MR_ASSIGN_OR_RETURN(LookupTable::KeysAndValues content, table->Export());
    ctx.SetOutput(0, std::move(content.first));
    ctx.SetOutput(1, std::move(content.second));
    return absl::OkStatus();
  }
};

#define MR_TABLE_FIND(name, handle)   \
  MILLRACE_OP(name)                   \
      .Input("table_handle: " handle) \
      .Input("keys: Tin")             \
      .Input("default_value: Tout")   \
      .Output("values: Tout")         \
      .Attr("Tin: type")              \
      .Attr("Tout: type")             \
      .Shape(UnknownShape)            \
      .NotDifferentiable()            \
      .Summary("Looks up the values of keys in a table.")
MR_TABLE_FIND(LookupTableFind, "Ref(string)");
MR_TABLE_FIND(LookupTableFindV2, "resource").Stateful();

#define MR_TABLE_CHANGE(name, handle, key_attr, value_attr, text) \
  MILLRACE_OP(name)                                               \
      .Input("table_handle: " handle)                             \
      .Input("keys: " key_attr)                                   \
      .Input("values: " value_attr)                               \
      .Attr(key_attr ": type")                                    \
      .Attr(value_attr ": type")                                  \
      .Shape(NoOutputs)                                           \
      .NotDifferentiable()                                        \
      .Summary(text)
MR_TABLE_CHANGE(LookupTableInsert, "Ref(string)", "Tin", "Tout", "Gives keys of a table new values.");
MR_TABLE_CHANGE(LookupTableInsertV2, "resource", "Tin", "Tout", "Gives keys of a table new values.").Stateful();
MR_TABLE_CHANGE(LookupTableImport, "Ref(string)", "Tin", "Tout", "Replaces the content of a table.");
MR_TABLE_CHANGE(LookupTableImportV2, "resource", "Tin", "Tout", "Replaces the content of a table.").Stateful();
MR_TABLE_CHANGE(InitializeTable, "Ref(string)", "Tkey", "Tval", "Fills a table.");
MR_TABLE_CHANGE(InitializeTableV2, "resource", "Tkey", "Tval", "Fills a table.").Stateful();

MILLRACE_OP(LookupTableRemoveV2)
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Attr("Tin: type")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("Removes keys from a table.");

#define MR_TABLE_SIZE(name, handle)   \
  MILLRACE_OP(name)                   \
      .Input("table_handle: " handle) \
      .Output("size: int64")          \
      .Shape(ScalarShape)             \
      .NotDifferentiable()            \
      .Summary("The number of keys in a table.")
MR_TABLE_SIZE(LookupTableSize, "Ref(string)");
MR_TABLE_SIZE(LookupTableSizeV2, "resource").Stateful();

#define MR_TABLE_EXPORT(name, handle) \
  MILLRACE_OP(name)                   \
      .Input("table_handle: " handle) \
      .Output("keys: Tkeys")          \
      .Output("values: Tvalues")      \
      .Attr("Tkeys: type")            \
      .Attr("Tvalues: type")          \
      .Shape(UnknownShape)            \
      .NotDifferentiable()            \
      .Summary("All keys and values of a table.")
MR_TABLE_EXPORT(LookupTableExport, "Ref(string)");
MR_TABLE_EXPORT(LookupTableExportV2, "resource").Stateful();

MILLRACE_KERNEL(LookupTableFind, kCpu, FindKernel);
MILLRACE_KERNEL(LookupTableFindV2, kCpu, FindKernel);
MILLRACE_KERNEL(LookupTableInsert, kCpu, ChangeKernel<Change::kInsert>);
MILLRACE_KERNEL(LookupTableInsertV2, kCpu, ChangeKernel<Change::kInsert>);
MILLRACE_KERNEL(LookupTableImport, kCpu, ChangeKernel<Change::kImport>);
MILLRACE_KERNEL(LookupTableImportV2, kCpu, ChangeKernel<Change::kImport>);
MILLRACE_KERNEL(InitializeTable, kCpu, ChangeKernel<Change::kInitialize>);
MILLRACE_KERNEL(InitializeTableV2, kCpu, ChangeKernel<Change::kInitialize>);
MILLRACE_KERNEL(LookupTableRemoveV2, kCpu, RemoveKernel);
MILLRACE_KERNEL(LookupTableSize, kCpu, TableSizeKernel);
MILLRACE_KERNEL(LookupTableSizeV2, kCpu, TableSizeKernel);
MILLRACE_KERNEL(LookupTableExport, kCpu, ExportKernel);
MILLRACE_KERNEL(LookupTableExportV2, kCpu, ExportKernel);

}  // namespace
}  // namespace millrace
