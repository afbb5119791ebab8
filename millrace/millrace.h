// Everything that a program using Millrace includes.
#pragma once

#include "millrace/api/client_session.h"
#include "millrace/api/clipping.h"
#include "millrace/api/gradients.h"
#include "millrace/api/initializers.h"
#include "millrace/api/input.h"
#include "millrace/api/layers.h"
#include "millrace/api/losses.h"
#include "millrace/api/metrics.h"
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/ops/all_ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/api/output.h"
#include "millrace/api/schedules.h"
#include "millrace/api/scope.h"
#include "millrace/api/variable.h"
