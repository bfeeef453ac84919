#pragma once

// How small policies are drawn.

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice::prover {

/// What must be there, since a test wrote it.
template <class T>
T Value(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

/// Gives a number below its argument.
using Draw = std::function<size_t(size_t)>;

inline const std::string& Pick(const std::vector<std::string>& list, const Draw& draw) { return list[draw(list.size())]; }

}  // namespace sluice::prover
