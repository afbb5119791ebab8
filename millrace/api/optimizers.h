// Optimizers.
//
//   Operation train = optimizers::Adam({.learning_rate = 1e-3}).Minimize(scope, loss);
//
// Options of type Input accept a number or a tensor, such as a schedule or a placeholder.
#pragma once

#include "millrace/api/optimizer.h"

namespace millrace::optimizers {

struct GradientDescentOptions {
  Input learning_rate = 0.01;
};
class GradientDescent : public Optimizer {
 public:
  explicit GradientDescent(GradientDescentOptions options, std::string name = "GradientDescent")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  bool SumsDuplicates() const override { return false; }
  GradientDescentOptions options_;
};

struct MomentumOptions {
  Input learning_rate = 0.01;
  Input momentum = 0.9;
  bool use_nesterov = false;
};
class Momentum : public Optimizer {
 public:
  explicit Momentum(MomentumOptions options, std::string name = "Momentum")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  MomentumOptions options_;
};

struct AdagradOptions {
  Input learning_rate = 0.01;
  double initial_accumulator = 0.1;
};
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(AdagradOptions options, std::string name = "Adagrad")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  AdagradOptions options_;
};

struct AdadeltaOptions {
  Input learning_rate = 0.001;
  Input rho = 0.95;
  Input epsilon = 1e-8;
};
class Adadelta : public Optimizer {
 public:
  explicit Adadelta(AdadeltaOptions options, std::string name = "Adadelta")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  AdadeltaOptions options_;
};

struct AdamOptions {
  Input learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  Input epsilon = 1e-8;
};
// As in TensorFlow, a sparse gradient still decays the moments of all rows and updates all rows.
class Adam : public Optimizer {
 public:
  explicit Adam(AdamOptions options, std::string name = "Adam")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  struct Settings;
  Settings SettingsFor(const Var& variable);
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  std::vector<Operation> Finish(const Scope& scope, const std::vector<Operation>& updates) override;
  AdamOptions options_;
  // The variable that the powers of the betas are colocated with.
  std::optional<Var> first_;
};

struct RMSPropOptions {
  Input learning_rate = 0.001;
  Input decay = 0.9;
  Input momentum = 0.0;
  Input epsilon = 1e-10;
  // Divide by the gradient's standard deviation instead of its root mean square.
  bool centered = false;
};
class RMSProp : public Optimizer {
 public:
  explicit RMSProp(RMSPropOptions options, std::string name = "RMSProp")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  Operation Apply(const Scope& scope, const Output& gradient, const Output* indices, const Var& variable);
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  RMSPropOptions options_;
};

struct FtrlOptions {
  Input learning_rate = 0.001;
  double learning_rate_power = -0.5;
  double initial_accumulator = 0.1;
  double l1 = 0;
  double l2 = 0;
  double l2_shrinkage = 0;
};
class Ftrl : public Optimizer {
 public:
  explicit Ftrl(FtrlOptions options, std::string name = "Ftrl")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  Operation Apply(const Scope& scope, const Output& gradient, const Output* indices, const Var& variable);
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  FtrlOptions options_;
};

// The updates of the proximal optimizers and of AdagradDA shrink weights towards 0 (l2), and small ones to 0 (l1).
struct ProximalGradientDescentOptions {
  Input learning_rate = 0.01;
  double l1 = 0;
  double l2 = 0;
};
class ProximalGradientDescent : public Optimizer {
 public:
  explicit ProximalGradientDescent(ProximalGradientDescentOptions options, std::string name = "ProximalGradientDescent")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  Operation Apply(const Scope& scope, const Output& gradient, const Output* indices, const Var& variable);
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  ProximalGradientDescentOptions options_;
};

struct ProximalAdagradOptions {
  Input learning_rate = 0.01;
  double initial_accumulator = 0.1;
  double l1 = 0;
  double l2 = 0;
};
class ProximalAdagrad : public Optimizer {
 public:
  explicit ProximalAdagrad(ProximalAdagradOptions options, std::string name = "ProximalAdagrad")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  Operation Apply(const Scope& scope, const Output& gradient, const Output* indices, const Var& variable);
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  ProximalAdagradOptions options_;
};

struct AdagradDAOptions {
  Input learning_rate = 0.01;
  // The number of steps before this one; usually GlobalStep(scope). Required.
  Input global_step = Input();
  double initial_accumulator = 0.1;
  double l1 = 0;
  double l2 = 0;
};
// Adagrad by dual averaging: a weight follows from the sum of all its gradients, so that sparse ones stay 0.
class AdagradDA : public Optimizer {
 public:
  explicit AdagradDA(AdagradDAOptions options, std::string name = "AdagradDA")
      : Optimizer(std::move(name)), options_(std::move(options)) {}

 private:
  Operation Apply(const Scope& scope, const Output& gradient, const Output* indices, const Var& variable);
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override;
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override;
  AdagradDAOptions options_;
};

}  // namespace millrace::optimizers
