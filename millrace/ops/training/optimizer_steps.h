// What each optimizer does with one element, on the CPU and on a GPU: see optimizer_kernel.h for what a struct consists
// of.
//
// Two compilers read this, as they do ops/kernels/functors.h: the CPU's, and NVRTC, as text.
#pragma once

#if defined(__CUDACC_RTC__) || defined(MILLRACE_ON_HOST)  // a program, behind ops/kernels/cuda/prelude.h
#define MR_OPTIMIZER_TYPES(...)
#else
#include <cmath>
#include <complex>

#include "millrace/ops/training/optimizer_kernel.h"
#ifndef MR_FN
#define MR_FN
#endif
#define MR_OPTIMIZER_TYPES(...) using DTypes = __VA_ARGS__;
#endif

namespace millrace::optimizer_steps {

template <typename T>
MR_FN T Square(T x) {
  return x * x;
}
template <typename T>
MR_FN T Sqrt(T x) {
  return std::sqrt(x);
}
template <typename T>
MR_FN T Rsqrt(T x) {
  return T(1) / std::sqrt(x);
}
template <typename T>
MR_FN T Sign(T x) {
  return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x);
}
template <typename T>
MR_FN T Max(T a, T b) {
  return a > b ? a : b;
}
// Soft thresholding: moves x towards zero by `by`, but not past it.
template <typename T>
MR_FN T Shrink(T x, T by) {
  return Sign(x) * Max(std::abs(x) - by, T(0));
}

struct GradientDescent {
  static constexpr int kVariables = 1;
  static constexpr const char* kScalars[] = {"alpha"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(FloatAndComplexTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : alpha(s[0]) {}

    MR_FN void operator()(T* v, T grad) const { v[0] -= grad * alpha; }

    const T alpha;
  };
};

// A step of gradient descent, then the proximal step of the L1 and L2 penalties.
struct ProximalGradientDescent {
  static constexpr int kVariables = 1;
  static constexpr const char* kScalars[] = {"alpha", "l1", "l2"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(Types<float, double>)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : alpha(s[0]), l1(s[1]), l2(s[2]) {}

    MR_FN void operator()(T* v, T grad) const {
      const T moved = v[0] - grad * alpha;
      v[0] = (l1 > T(0) ? Shrink(moved, alpha * l1) : moved) / (T(1) + l2 * alpha);
    }

    const T alpha, l1, l2;
  };
};

// v: variable, accumulator.
struct Momentum {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "momentum"};
  static constexpr const char* kFlag = "use_nesterov";
  MR_OPTIMIZER_TYPES(FloatAndComplexTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool flag) : lr(s[0]), momentum(s[1]), use_nesterov(flag) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] = v[1] * momentum + grad;
      v[0] -= use_nesterov ? grad * lr + v[1] * momentum * lr : v[1] * lr;
    }

    const T lr, momentum;
    const bool use_nesterov;
  };
};

// The accumulator includes the learning rate.
struct KerasMomentum {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "momentum"};
  static constexpr const char* kFlag = "use_nesterov";
  MR_OPTIMIZER_TYPES(FloatAndComplexTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool flag) : lr(s[0]), momentum(s[1]), use_nesterov(flag) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] = v[1] * momentum - grad * lr;
      v[0] += use_nesterov ? v[1] * momentum - grad * lr : v[1];
    }

    const T lr, momentum;
    const bool use_nesterov;
  };
};

// v: variable, accumulator.
struct Adagrad {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr"};
  static constexpr const char* kFlag = "update_slots";
  MR_OPTIMIZER_TYPES(FloatAndComplexTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool flag) : lr(s[0]), update_slots(flag) {}

    MR_FN void operator()(T* v, T grad) const {
      if (update_slots) v[1] += Square(grad);
      v[0] -= grad * lr * Rsqrt(v[1]);
    }

    const T lr;
    const bool update_slots;
  };
};

struct AdagradV2 {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "epsilon"};
  static constexpr const char* kFlag = "update_slots";
  MR_OPTIMIZER_TYPES(FloatAndComplexTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool flag) : lr(s[0]), epsilon(s[1]), update_slots(flag) {}

    MR_FN void operator()(T* v, T grad) const {
      if (update_slots) v[1] += Square(grad);
      v[0] -= grad * lr / (Sqrt(v[1]) + epsilon);
    }

    const T lr, epsilon;
    const bool update_slots;
  };
};

struct ProximalAdagrad {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "l1", "l2"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(Types<float, double>)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : lr(s[0]), l1(s[1]), l2(s[2]) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] += Square(grad);
      const T rate = lr * Rsqrt(v[1]);
      const T moved = v[0] - grad * rate;
      v[0] = (l1 > T(0) ? Shrink(moved, rate * l1) : moved) / (T(1) + l2 * rate);
    }

    const T lr, l1, l2;
  };
};

// v: variable, sum of gradients, sum of their squares.
struct AdagradDa {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "global_step"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(Types<float, double>)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : lr(s[0]), l1(s[1]), l2(s[2]), global_step(s[3]) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] += grad;
      v[2] += Square(grad);
      const T sum = l1 > T(0) ? Shrink(v[1], l1 * global_step) : v[1];
      v[0] = -lr * sum / (l2 * global_step * lr + Sqrt(v[2]));
    }

    const T lr, l1, l2, global_step;
  };
};

// v: variable, mean square of gradients, mean square of updates.
struct Adadelta {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "rho", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(FloatAndComplexTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : lr(s[0]), rho(s[1]), epsilon(s[2]) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] = v[1] * rho + Square(grad) * (T(1) - rho);
      const T update = Sqrt(v[2] + epsilon) * Rsqrt(v[1] + epsilon) * grad;
      v[0] -= update * lr;
      v[2] = v[2] * rho + Square(update) * (T(1) - rho);
    }

    const T lr, rho, epsilon;
  };
};

// v: variable, mean square of gradients, momentum.
struct RmsProp {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "rho", "momentum", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(FloatAndComplexTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : lr(s[0]), rho(s[1]), momentum(s[2]), epsilon(s[3]) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] += (Square(grad) - v[1]) * (T(1) - rho);
      v[2] = v[2] * momentum + grad * lr * Rsqrt(v[1] + epsilon);
      v[0] -= v[2];
    }

    const T lr, rho, momentum, epsilon;
  };
};

// v: variable, mean of gradients, mean of their squares, momentum.
struct CenteredRmsProp {
  static constexpr int kVariables = 4;
  static constexpr const char* kScalars[] = {"lr", "rho", "momentum", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(FloatAndComplexTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : lr(s[0]), rho(s[1]), momentum(s[2]), epsilon(s[3]) {}

    MR_FN void operator()(T* v, T grad) const {
      v[2] += (Square(grad) - v[2]) * (T(1) - rho);
      v[1] += (grad - v[1]) * (T(1) - rho);
      v[3] = v[3] * momentum + grad * lr * Rsqrt(v[2] - Square(v[1]) + epsilon);
      v[0] -= v[3];
    }

    const T lr, rho, momentum, epsilon;
  };
};

// v: variable, mean of gradients, mean of their squares. alpha corrects both for their start at zero.
struct Adam {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"};
  static constexpr const char* kFlag = "use_nesterov";
  MR_OPTIMIZER_TYPES(FloatAndComplexTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool flag)
        : alpha(s[2] * Sqrt(T(1) - s[1]) / (T(1) - s[0])),
          beta1(s[3]),
          beta2(s[4]),
          epsilon(s[5]),
          use_nesterov(flag) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] += (grad - v[1]) * (T(1) - beta1);
      v[2] += (Square(grad) - v[2]) * (T(1) - beta2);
      const T direction = use_nesterov ? grad * (T(1) - beta1) + beta1 * v[1] : v[1];
      v[0] -= direction * alpha / (Sqrt(v[2]) + epsilon);
    }

    const T alpha, beta1, beta2, epsilon;
    const bool use_nesterov;
  };
};

// Adam with the maximum mean square so far, v[3], instead of the current one.
struct Amsgrad {
  static constexpr int kVariables = 4;
  static constexpr const char* kScalars[] = {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(FloatTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool)
        : alpha(s[2] * Sqrt(T(1) - s[1]) / (T(1) - s[0])), beta1(s[3]), beta2(s[4]), epsilon(s[5]) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] += (grad - v[1]) * (T(1) - beta1);
      v[2] += (Square(grad) - v[2]) * (T(1) - beta2);
      v[3] = Max(v[3], v[2]);
      v[0] -= v[1] * alpha / (Sqrt(v[3]) + epsilon);
    }

    const T alpha, beta1, beta2, epsilon;
  };
};

// v: variable, mean of gradients, greatest gradient so far, fading.
struct AdaMax {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"beta1_power", "lr", "beta1", "beta2", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(FloatTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : alpha(s[1] / (T(1) - s[0])), beta1(s[2]), beta2(s[3]), epsilon(s[4]) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] += (grad - v[1]) * (T(1) - beta1);
      v[2] = Max(beta2 * v[2], std::abs(grad));
      v[0] -= alpha * (v[1] / (v[2] + epsilon));
    }

    const T alpha, beta1, beta2, epsilon;
  };
};

// v: variable, sum of squared gradients, linear term. `steered` is the gradient that enters the linear
// term. With multiply_linear_by_lr that term is kept times the learning rate.
template <typename T>
struct FtrlRule {
  // accum to the power of -lr_power; a root in the usual case.
  MR_FN T Power(T accum) const { return lr_power == T(-0.5) ? Sqrt(accum) : std::pow(accum, -lr_power); }

  MR_FN void Update(T* v, T grad, T steered) const {
    const T accum = v[1] + Square(grad);
    const T power = Power(accum);
    const T growth = power - Power(v[1]);
    v[2] += multiply_linear_by_lr ? steered * lr - growth * v[0] : steered - growth / lr * v[0];
    const T bound = multiply_linear_by_lr ? l1 * lr : l1;
    const T curvature = multiply_linear_by_lr ? power + T(2) * l2 * lr : power / lr + T(2) * l2;
    v[0] = -Shrink(v[2], bound) / curvature;
    v[1] = accum;
  }

  T lr, l1, l2, lr_power;
  bool multiply_linear_by_lr;
};

struct Ftrl {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "lr_power"};
  static constexpr const char* kFlag = "multiply_linear_by_lr";
  MR_OPTIMIZER_TYPES(FloatTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool flag) : rule{s[0], s[1], s[2], s[3], flag} {}
    MR_FN void operator()(T* v, T grad) const { rule.Update(v, grad, grad); }

    const FtrlRule<T> rule;
  };
};

// With L2 shrinkage, which is added to the gradient.
struct FtrlV2 {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "l2_shrinkage", "lr_power"};
  static constexpr const char* kFlag = "multiply_linear_by_lr";
  MR_OPTIMIZER_TYPES(FloatTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool flag) : rule{s[0], s[1], s[2], s[4], flag}, l2_shrinkage(s[3]) {}
    MR_FN void operator()(T* v, T grad) const { rule.Update(v, grad, grad + T(2) * l2_shrinkage * v[0]); }

    const FtrlRule<T> rule;
    const T l2_shrinkage;
  };
};

// v: variable, mean of gradients.
struct AddSign {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "alpha", "sign_decay", "beta"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(FloatTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : lr(s[0]), alpha(s[1]), sign_decay(s[2]), beta(s[3]) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] = v[1] * beta + grad * (T(1) - beta);
      v[0] -= lr * (alpha + sign_decay * Sign(grad) * Sign(v[1])) * grad;
    }

    const T lr, alpha, sign_decay, beta;
  };
};

struct PowerSign {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "logbase", "sign_decay", "beta"};
  static constexpr const char* kFlag = nullptr;
  MR_OPTIMIZER_TYPES(FloatTypes)

  template <typename T>
  struct Step {
    MR_FN Step(const T* s, bool) : lr(s[0]), logbase(s[1]), sign_decay(s[2]), beta(s[3]) {}

    MR_FN void operator()(T* v, T grad) const {
      v[1] = v[1] * beta + grad * (T(1) - beta);
      v[0] -= lr * std::exp(logbase * sign_decay * Sign(grad) * Sign(v[1])) * grad;
    }

    const T lr, logbase, sign_decay, beta;
  };
};

}  // namespace millrace::optimizer_steps
